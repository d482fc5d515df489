// Custom models in which projections can be packed into one GEMM, or must not be: the losses equal those of a
// model in which frozen zero biases prevent packing.
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/temp_folder.h"
#include "config/validate.h"
#include "graph/builder.h"
#include "train/loop.h"

namespace quintet::train {
namespace {

using graph::Builder;
using graph::Dim;
using graph::DimSize;
using graph::ValueId;

constexpr int64_t kVocab = 256;
const DimSize kEmbed{Dim::Embed, 16}, kFfn{Dim::Ffn, 32}, kHeads{Dim::Heads, 2}, kKv{Dim::KvHeads, 2},
    kHeadDim{Dim::HeadDim, 8};

enum class Kind : uint8_t {
  Plain,
  SharedGate,  // one gate for all blocks, one up projection each
  SharedUp,
  Wide,        // SwiGLU over [tokens, heads, d]
  KeyIsValue,  // one weight for k and v
  RopeOfKeys,  // q is not rotated
  Parallel,    // attention and feed-forward share one norm
};

class Model {
 public:
  Model(const graph::BuildOptions& options, Kind kind, bool apart)
      : b_(options), kind_(kind), apart_(apart) {}

  graph::Graph build() {
    const DimSize vocab{Dim::Vocab, kVocab};
    ValueId x = b_.embedding(b_.weight("embed.weight", {vocab, kEmbed}, 0.5), b_.ids());
    for (int i = 0; i < 2; ++i) {
      b_.next_block();
      name_ = "layers." + std::to_string(i) + ".";
      const ValueId y = b_.rms_norm(x, b_.norm_weight(name_ + "norm.weight", kEmbed), 1e-5);
      const bool attends = kind_ >= Kind::KeyIsValue;
      if (attends) x = b_.add(x, attention(y));
      if (!attends || kind_ == Kind::Parallel) x = b_.add(x, feed_forward(y));
    }
    b_.next_block();
    b_.head(x, b_.weight("head.weight", {vocab, kEmbed}, 0.5));
    if (apart_) b_.freeze({"zero.*"});
    return b_.finish();
  }

 private:
  ValueId linear(ValueId x, ValueId w, const std::string& name, const std::vector<DimSize>& dims) {
    return apart_ ? b_.linear(x, w, b_.bias("zero." + name_ + name, dims)) : b_.linear(x, w);
  }

  ValueId attention(ValueId y) {
    const auto weight = [&](const char* name, DimSize heads) {
      return b_.weight(name_ + name, {heads, kHeadDim, kEmbed}, 0.5);
    };
    const ValueId wq = weight("q", kHeads), wk = weight("k", kKv);
    const ValueId wv = kind_ == Kind::KeyIsValue ? wk : weight("v", kKv);
    ValueId q = linear(y, wq, "q", {kHeads, kHeadDim}), k = linear(y, wk, "k", {kKv, kHeadDim});
    const ValueId v = linear(y, wv, "v", {kKv, kHeadDim});
    const std::vector<double> frequencies = {1, 0.3, 0.1, 0.01};
    if (kind_ != Kind::RopeOfKeys) q = b_.rope(q, frequencies);
    k = b_.rope(k, frequencies);
    return b_.linear(b_.attention(q, k, v, {.scale = 0.3}),
                     b_.weight(name_ + "o", {kEmbed, kHeads, kHeadDim}, 0.5));
  }

  ValueId feed_forward(ValueId y) {
    std::vector<DimSize> inner = {kFfn};
    if (kind_ == Kind::Wide) inner = {kHeads, kHeadDim};
    std::vector<DimSize> in = inner, out = inner;
    in.push_back(kEmbed);
    out.insert(out.begin(), kEmbed);
    const auto weight = [&](Kind shared, const char* name) {
      if (kind_ != shared) return b_.weight(name_ + name, in, 0.5);
      if (!shared_.valid()) shared_ = b_.weight("shared", in, 0.5);
      return shared_;
    };
    const ValueId gate = weight(Kind::SharedGate, "gate"), up = weight(Kind::SharedUp, "up");
    const ValueId g = linear(y, gate, "gate", inner), u = linear(y, up, "up", inner);
    return b_.linear(b_.swiglu(g, u), b_.weight(name_ + "down", out, 0.5));
  }

  Builder b_;
  const Kind kind_;
  const bool apart_;
  std::string name_;
  ValueId shared_;
};

RunResult run_model(const compiler::ModelFn& model, int64_t accumulation, int64_t zero,
                    config::RecomputeKind recompute) {
  const test::TempFolder folder;
  config::Recipe r;
  r.name = "packed";
  r.model = {.layers = 2, .embed = 16, .ffn = 32, .heads = 2, .vocab = kVocab};
  r.data.seq_len = 8;
  r.batch = {.global = 8, .micro = 8 / accumulation / (zero > 0 ? 2 : 1)};
  if (zero > 0) r.parallel = {.dp_shard = 2, .zero = zero};
  r.precision = config::Precision::of(base::DType::F64);
  r.optimizer.lr = 1e-2;
  r.memory.recompute = recompute;
  r.run.steps = 3;
  r.run.dir = (folder / "run").string();
  std::vector<int32_t> tokens;
  for (int32_t i = 0, value = 1; i < 4000; ++i) tokens.push_back(value = (value * 7 + 3) % 50);
  RunOptions options;
  options.model = model;
  options.corpus = data::Corpus::from_documents("n", kVocab, {tokens});
  return run([&] { return config::resolve(r); }, options);
}

TEST(PackedModel, LossesMatchSeparateProjections) {
  for (const Kind kind : {Kind::Plain, Kind::SharedGate, Kind::SharedUp, Kind::Wide, Kind::KeyIsValue,
                          Kind::RopeOfKeys, Kind::Parallel})
    for (const int64_t accumulation : {1, 2})
      for (const int64_t zero : {0, 3})
        for (const auto recompute : {config::RecomputeKind::None, config::RecomputeKind::Full}) {
          const auto last = [&](bool apart) {
            const auto model = [&](const graph::BuildOptions& o) { return Model(o, kind, apart).build(); };
            return run_model(model, accumulation, zero, recompute).summary.last_loss;
          };
          const double packed = last(false), apart = last(true);
          EXPECT_NEAR(packed, apart, 1e-11 * apart)
              << "kind " << static_cast<int>(kind) << ", accumulation " << accumulation << ", zero " << zero;
        }
}

// One op computes the gradients of both, so both accumulate or neither does.
TEST(PackedModel, ANormSharesItsWeightAndItsBiasOrNeither) {
  const auto model = [](bool shares_bias) {
    return [=](const graph::BuildOptions& options) {
      const DimSize vocab{Dim::Vocab, kVocab};
      Builder b(options);
      ValueId x = b.embedding(b.weight("embed.weight", {vocab, kEmbed}, 0.5), b.ids()), weight, bias;
      for (int i = 0; i < 2; ++i) {
        b.next_block();
        const std::string name = "layers." + std::to_string(i) + ".";
        if (i == 0) weight = b.norm_weight("norm", kEmbed);
        if (i == 0 || !shares_bias) bias = b.bias(name + "bias", {kEmbed});
        const ValueId y = b.layer_norm(x, weight, bias, 1e-5);
        const ValueId hidden = b.gelu(b.linear(y, b.weight(name + "up", {kFfn, kEmbed}, 0.5)));
        x = b.add(x, b.linear(hidden, b.weight(name + "down", {kEmbed, kFfn}, 0.5)));
      }
      b.next_block();
      b.head(x, b.weight("head.weight", {vocab, kEmbed}, 0.5));
      return b.finish();
    };
  };
  EXPECT_NO_THROW(run_model(model(true), 1, 0, config::RecomputeKind::None));
  try {
    run_model(model(false), 1, 0, config::RecomputeKind::None);
    FAIL() << "not refused";
  } catch (const base::UserError& e) {
    EXPECT_NE(std::string(e.what()).find("share all of them or none"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace quintet::train
