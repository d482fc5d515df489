// Context parallelism, where other trainers had bugs. All in f64 against one rank; each test names the bug it
// guards against.
#include <fmt/format.h>

#include "data/dataset.h"
#include "equivalence/checks.h"

namespace quintet::tests {
namespace {

using config::ContextMethod;
using config::Recipe;
using tools::LayoutRun;

struct Method {
  const char* name;
  ContextMethod method;
  int64_t cp, ulysses;
};
const Method kMethods[] = {{"gather", ContextMethod::Gather, 2, 0},
                           {"ring", ContextMethod::Ring, 2, 0},
                           {"ring of four", ContextMethod::Ring, 4, 0},
                           {"ulysses", ContextMethod::Ulysses, 4, 0},
                           {"ulysses+ring", ContextMethod::UlyssesRing, 4, 2}};

Recipe with(const Method& m) {
  Recipe r = small_recipe();
  r.data.seq_len = 16;
  r.parallel.cp = m.cp;
  r.parallel.cp_method = m.method;
  r.parallel.ulysses = m.ulysses;
  return r;
}

// Two sequences of 16 tokens. Tokens before kCut belong to document A, the others to document B; only labels
// of one of them count.
constexpr int kCut = 7;
struct Documents {
  int32_t a = 1, b = 2;  // which tokens they have
  bool learn_b = true;
  bool apart = true;
};

LayoutRun run_documents(const Recipe& r, const Documents& d) {
  const int64_t seq = r.data.seq_len, rows = r.batch.micro * seq;
  const exec::LoadBatch load = [=](int, const auto& inputs) {
    for (int64_t i = 0; i < rows; ++i) {
      const auto at = static_cast<int32_t>(i % seq);
      const bool in_b = at >= kCut;
      const auto token = [&](int32_t t) { return (t * (t < kCut ? d.a : d.b) * 13 + 5) % 256; };
      for (const auto& [spec, data] : inputs) {
        using graph::InputKind;
        if (spec.kind == InputKind::Ids) data[i] = token(at);
        if (spec.kind == InputKind::Labels) data[i] = in_b == d.learn_b ? (at * 31) % 256 : data::kIgnored;
        if (spec.kind == InputKind::Positions) data[i] = d.apart && in_b ? at - kCut : at;
        if (spec.kind == InputKind::Documents) data[i] = d.apart && in_b;
        if (spec.kind == InputKind::Samples) data[i] = static_cast<int32_t>(i / seq);
      }
    }
  };
  const int64_t labels = r.batch.micro * (d.learn_b ? seq - kCut : kCut);
  const data::Dataset dataset = tools::training_data(r, true);
  return tools::run_layout(
      r, tools::training_batches(r, dataset),
      {.steps = 1, .step = [=](train::Rank& rank, int64_t s) { return rank.step_with(s, load, labels); }});
}

// nanoVLM#201, functionary#265: positions restarted, but documents still saw each other. Bit for bit, in
// loss and gradients.
TEST(Context, ChangingADocumentNeverChangesAnothersLoss) {
  for (const Method& m : kMethods) {
    SCOPED_TRACE(m.name);
    const Recipe r = resolved(with(m), 2, 1);
    const LayoutRun one = run_documents(r, {.a = 1}), other = run_documents(r, {.a = 3});
    EXPECT_EQ(one.steps[0].result.loss, other.steps[0].result.loss);
    for (size_t t = 0; t < one.steps[0].gradients.size(); ++t)
      EXPECT_EQ(one.steps[0].gradients[t].values, other.steps[0].gradients[t].values)
          << one.steps[0].gradients[t].name;
    // B comes after A, so A could not see it anyway; but B's gradients must not flow into A.
    EXPECT_EQ(run_documents(r, {.b = 2, .learn_b = false}).steps[0].result.loss,
              run_documents(r, {.b = 5, .learn_b = false}).steps[0].result.loss);
    // The test can fail: a single running text does change.
    EXPECT_NE(run_documents(r, {.a = 1, .apart = false}).steps[0].result.loss,
              run_documents(r, {.a = 3, .apart = false}).steps[0].result.loss);
  }
}

// Megatron-LM PR#7513: with one valid token cp 2 halved the gradient, and cp 4 quartered it.
TEST(Context, OneValidTokenIsNotDividedByCp) {
  for (const Method& m : kMethods)
    for (const int64_t position : {0, 9, 15}) {
      SCOPED_TRACE(fmt::format("{}, position {}", m.name, position));
      Recipe r = with(m);
      r.data.pack = false;
      r.parallel.dp_replicate = 2;
      expect_equal(resolved(r, 1, 2), only(2, position));
    }
}

// Megatron-LM#7452: loss normalised by the tokens of one context rank.
TEST(Context, LossIsTheMeanOverTheTokensOfAllContextRanks) {
  for (const Method& m : kMethods) {
    SCOPED_TRACE(m.name);
    Recipe r = with(m);
    r.parallel.dp_shard = 2;
    r.parallel.zero = 1;
    expect_equal(resolved(r, 1, 3),
                 [](const data::LabelSite& s) { return s.position * s.position <= 20 * s.sequence; });
  }
}

// Megatron-LM#1464: relative errors of up to 1.2 in dQ, dK and dV.
TEST(Context, GradientsOfQKAndVUnderEveryMethod) {
  for (const Method& m : kMethods)
    for (const int64_t kv_heads : {1, 2, 4}) {
      SCOPED_TRACE(fmt::format("{}, {} KV heads", m.name, kv_heads));
      Recipe r = with(m);
      r.model.kv_heads = kv_heads;
      r.model.qkv_bias = r.model.qk_norm = true;
      expect_equal(resolved(r, 2, 1));
    }
}

// Megatron-LM#673, #906: losses that diverged with cp. Chunks of one, three and five rows in zig-zag order.
TEST(Context, ShortChunksInZigZagOrder) {
  for (const Method& m : kMethods)
    for (const int64_t rows : {1, 3, 5}) {
      Recipe r = with(m);
      r.data.seq_len = 2 * m.cp * rows;
      expect_equal(resolved(r, 1, 1));
    }
}

// pytorch#152261 (wrong results with cp). A window of a few tokens crosses the border between chunks of
// different ranks, and ends there.
TEST(Context, SlidingWindowsReachAcrossChunks) {
  for (const Method& m : kMethods)
    for (const int64_t window : {1, 3, 6, 15}) {
      SCOPED_TRACE(fmt::format("{}, window {}", m.name, window));
      Recipe r = with(m);
      r.model.sliding_window = window;
      expect_equal(resolved(r, 1, 1));
    }
}

// DeepSpeed#4674: Ulysses worked for some numbers of heads only. Fewer KV heads than ranks, combined with
// tensor ranks that share them too.
TEST(Context, FewerKvHeadsThanTensorAndContextRanks) {
  for (const Method& m : kMethods)
    for (const int64_t kv_heads : {1, 2, 8}) {
      SCOPED_TRACE(fmt::format("{}, {} KV heads", m.name, kv_heads));
      Recipe r = with(m);
      r.model.heads = 8;
      r.model.kv_heads = kv_heads;
      r.parallel.tp = 2;
      r.parallel.sequence_parallel = kv_heads == 1;
      expect_equal(resolved(r, 1, 1));
    }
}

// Pai-Megatron-Patch#217: dropout drew different masks when ranks were added.
TEST(Context, DropoutIsEqualUnderEveryMethod) {
  for (const Method& m : kMethods) {
    SCOPED_TRACE(m.name);
    Recipe r = with(m);
    r.model = {.family = config::Family::Gpt2,
               .layers = 1,
               .embed = 16,
               .ffn = 24,
               .heads = 4,
               .vocab = 257,
               .max_positions = 16,
               .dropout = 0.3};
    expect_equal(resolved(r, 2, 2));
  }
}

// miles_diffusion PR#35, pytorch#170862: norms wrong by the number of shards. Sharding is over data and
// context ranks together.
TEST(Context, ZeroShardsOverContextRanks) {
  for (const Method& m : kMethods)
    for (const int64_t zero : {0, 1, 2, 3}) {
      SCOPED_TRACE(fmt::format("{}, zero {}", m.name, zero));
      Recipe r = with(m);
      r.parallel.zero = zero;
      expect_norm_counts_once(resolved(r, 1, 2));
    }
}

// nccl#997, #1111 (hang without an error). Ring messages and pipeline messages run concurrently, and neither
// waits for the other forever.
TEST(Context, RingsInsidePipelineStages) {
  for (const char* schedule : {"1f1b", "interleaved", "zb-v"}) {
    SCOPED_TRACE(schedule);
    Recipe r = with(kMethods[1]);
    r.model.layers = 4;
    r.model.tied = true;
    r.parallel.pp = 2;
    r.parallel.schedule = schedule;
    expect_equal(resolved(r, 1, 4));
  }
}

// Megatron-LM#1464, for latent attention: K is concatenated from parts with and without heads before it is
// sent.
TEST(Context, LatentAttentionUnderEveryMethod) {
  for (const Method& m : kMethods) {
    SCOPED_TRACE(m.name);
    Recipe r = with(m);
    r.model.kv_heads = r.model.head_dim = 0;
    r.model.mla = {.kv_rank = 6, .q_rank = 5, .nope_dim = 3, .rope_dim = 2, .v_dim = 5};
    r.parallel.tp = m.cp == 2 ? 2 : 1;
    r.parallel.sequence_parallel = m.cp == 2;
    expect_equal(resolved(r, 2, 1));
  }
}

}  // namespace
}  // namespace quintet::tests
