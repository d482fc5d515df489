// Attention over rows in the order of context ranks, in bf16 and f16 through the kernel table: every rank and
// hop of a ring, and whole sequences, against the CPU's kernels in f64. Also checks that cuDNN is actually
// used.
#include <cmath>
#include <random>

#include "gpu/op_runner.h"
#include "gpu/similar.h"

namespace quintet::tests {
namespace {

using graph::Dim;
using graph::DType;
using graph::Type;

struct Ring {
  int64_t ranks, sequences, chunk, heads, kv_heads, head_dim;
  int64_t ulysses = 1;  // neighbours whose rows are in one buffer

  int64_t pieces() const { return ulysses * sequences; }  // of two chunks each
  int64_t local_rows() const { return pieces() * 2 * chunk; }
  int64_t seq_len() const { return 2 * chunk * ulysses * ranks; }
};
// Chunks of whole tiles and of odd numbers of rows.
constexpr Ring kRings[] = {{2, 3, 64, 8, 2, 64}, {2, 1, 100, 4, 4, 128},   {4, 2, 128, 8, 2, 128},
                           {4, 3, 37, 4, 1, 64}, {2, 3, 50, 4, 2, 128, 2}, {2, 2, 16, 4, 1, 64, 4},
                           {2, 2, 33, 4, 2, 96}};

std::vector<double> reals(const HostTensor& t) {
  const HostTensor wide = to_f64(t);
  return {wide.real(), wide.real() + wide.type.count()};
}

HostTensor random_rows(const Ring& r, Dim heads, DType dtype, uint64_t seed, int64_t parts = 1) {
  HostTensor t(Type{DType::F64,
                    {{Dim::Tokens, parts * r.local_rows()},
                     {heads, heads == Dim::Heads ? r.heads : r.kv_heads},
                     {Dim::HeadDim, r.head_dim}}});
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < t.type.count(); ++i) t.real()[i] = normal(random);
  return to_dtype(t, dtype);
}
HostTensor one_document(int64_t rows) {  // in every sequence
  HostTensor t(Type{DType::I32, {{Dim::Tokens, rows}}});
  std::fill_n(t.index(), rows, 0);
  return t;
}

graph::Attrs attrs_of(const Ring& r, bool deterministic, bool packed = false) {
  return {{"seq_len", r.seq_len()},
          {"window", int64_t{0}},
          {"scale", 1 / std::sqrt(static_cast<double>(r.head_dim))},
          {"dropout", 0.0},
          {"salt", int64_t{0}},
          {"cp", r.ranks * r.ulysses},
          {"ulysses", r.ulysses},
          {"packed", int64_t{packed ? 1 : 0}},
          {"deterministic", int64_t{deterministic ? 1 : 0}}};
}
graph::Attrs hop_attrs(const Ring& r, int64_t hop, bool deterministic) {
  graph::Attrs attrs = attrs_of(r, deterministic);
  attrs.set("hop", hop);
  return attrs;
}

// The op as on ring rank g.
OpRun op_of(const graph::OpDef& op, const graph::Attrs& attrs, std::vector<HostTensor> in, int64_t g,
            int64_t ranks) {
  OpRun run{&op, attrs, std::move(in), {}};
  std::vector<Type> types;
  for (const HostTensor& t : run.in) types.push_back(t.type);
  const std::vector<Type> out = op.infer(types, attrs);
  for (const Type& t : out) run.out.emplace_back(t);
  run.parts = whole_parts(op, types, out, attrs);
  for (program::Part& p : run.parts)
    if (p.dim == Dim::Context) {
      p.begin = g * p.size;
      p.global = ranks * p.size;
    }
  return run;
}

struct Outcome {
  std::vector<HostTensor> want, got;  // of the CPU in f64; of the GPU
};

// Also with the results aliasing the earlier ones, which are operands from `before` on.
Outcome run_both(const OpRun& run, int64_t g, int64_t ranks, bool same_bits, size_t before, bool by_library) {
  std::vector<HostTensor> wide;
  for (const HostTensor& t : run.in) wide.push_back(to_f64(t));
  Outcome out{run_on_cpu(op_of(*run.op, run.attrs, std::move(wide), g, ranks)), {}};
  const int64_t runs = libraries().attention().runs();
  out.got = run_on_gpu(run, libraries(), same_bits);
  EXPECT_EQ(libraries().attention().runs() >= runs + 2, by_library)
      << "cuDNN: " << libraries().attention().why_not();
  if (before >= run.in.size() || !same_bits) return out;
  OpRun in_place = run;
  for (size_t i = 0; before + i < run.in.size(); ++i) in_place.in_place.push_back({i, before + i});
  const std::vector<HostTensor> again = run_on_gpu(in_place, libraries());
  for (size_t i = 0; i < again.size(); ++i)
    EXPECT_EQ(out.got[i].bytes, again[i].bytes) << "result " << i << " in place";
  return out;
}

// Rows of the early or late chunks, all heads.
std::vector<std::byte> chunk_bytes(const Ring& r, const HostTensor& t, int64_t which) {
  const auto row = static_cast<size_t>(t.type.bytes() / r.local_rows()),
             chunk = row * static_cast<size_t>(r.chunk);
  std::vector<std::byte> out;
  for (int64_t s = 0; s < r.pieces(); ++s) {
    const auto from = t.bytes.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(2 * s + which) * chunk);
    out.insert(out.end(), from, from + static_cast<ptrdiff_t>(chunk));
  }
  return out;
}

void expect_lse(const HostTensor& got, const HostTensor& want) {
  expect_similar(reals(got), reals(want), 0x1p-16, "lse");
}

class GpuHops : public testing::TestWithParam<std::tuple<Ring, DType>> {
 protected:
  void SetUp() override {
    for (int64_t j = 0; j < ring().ranks; ++j) {
      keys_.push_back(random_rows(ring(), Dim::KvHeads, dtype(), 100 + static_cast<uint64_t>(j)));
      values_.push_back(random_rows(ring(), Dim::KvHeads, dtype(), 200 + static_cast<uint64_t>(j)));
    }
  }
  const Ring& ring() const { return std::get<0>(GetParam()); }
  DType dtype() const { return std::get<1>(GetParam()); }
  double rounding() const { return dtype() == DType::BF16 ? 0x1p-9 : 0x1p-11; }
  int64_t source(int64_t g, int64_t hop) const { return (g - hop + ring().ranks) % ring().ranks; }

  struct Whole {
    HostTensor o, lse;  // over all keys, as the backward pass reads them
  };
  Whole forward(int64_t g, const HostTensor& q) {
    const Ring& r = ring();
    HostTensor o, lse;
    for (int64_t hop = 0; hop < r.ranks; ++hop) {
      const int64_t j = source(g, hop);
      SCOPED_TRACE(testing::Message() << "forward, queries of " << g << ", keys of " << j);
      std::vector<HostTensor> in = {q, at(keys_, j), at(values_, j), one_document(r.local_rows()),
                                    one_document(r.local_rows() * r.ranks)};
      const size_t before = in.size();
      if (hop > 0) in.insert(in.end(), {o, lse});
      const OpRun run = op_of(graph::kAttentionHop, hop_attrs(r, hop, true), in, g, r.ranks);
      const Outcome out = run_both(run, g, r.ranks, true, before, true);
      expect_similar(reals(out.got[0]), reals(out.want[0]), rounding(), "o");
      expect_lse(out.got[1], out.want[1]);
      // Queries that see nothing keep the earlier result, bit for bit.
      if (j > g) {
        EXPECT_EQ(chunk_bytes(r, out.got[0], 0), chunk_bytes(r, o, 0));
      }
      o = to_dtype(out.want[0], DType::F32);
      lse = to_dtype(out.want[1], DType::F32);
    }
    return {to_dtype(to_f64(o), dtype()), lse};
  }
  void backward(int64_t g, const HostTensor& q, const Whole& whole, bool deterministic) {
    const Ring& r = ring();
    const HostTensor dout = random_rows(r, Dim::Heads, dtype(), 300 + static_cast<uint64_t>(g));
    HostTensor dq;
    for (int64_t hop = 0; hop < r.ranks; ++hop) {
      const int64_t j = source(g, hop);
      SCOPED_TRACE(testing::Message() << "backward, queries of " << g << ", keys of " << j
                                      << (deterministic ? ", deterministic" : ""));
      const HostTensor &k = at(keys_, j), &v = at(values_, j);
      std::vector<HostTensor> in = {dout,
                                    q,
                                    k,
                                    v,
                                    whole.o,
                                    whole.lse,
                                    one_document(r.local_rows()),
                                    one_document(r.local_rows() * r.ranks)};
      const size_t before = in.size();
      if (hop > 0) in.push_back(dq);
      const OpRun run = op_of(graph::kAttentionHopDx, hop_attrs(r, hop, deterministic), in, g, r.ranks);
      const Outcome out = run_both(run, g, r.ranks, deterministic, before, !deterministic);
      const double delta = carried_error(run.attrs.real("scale"), r.head_dim, reals(dout), reals(v));
      expect_similar(reals(out.got[0]), reals(out.want[0]), rounding(), "dq",
                     delta * root_mean_square(reals(k)));
      expect_similar(reals(out.got[1]), reals(out.want[1]), rounding(), "dk",
                     delta * root_mean_square(reals(q)));
      expect_similar(reals(out.got[2]), reals(out.want[2]), rounding(), "dv", root_mean_square(reals(dout)));
      if (j > g) {
        EXPECT_EQ(chunk_bytes(r, out.got[0], 0), chunk_bytes(r, dq, 0));
      }
      if (j < g)  // no query sees the late keys
        for (const size_t i : {1, 2}) {
          const std::vector<std::byte> late = chunk_bytes(r, out.got[i], 1);
          EXPECT_EQ(late, std::vector<std::byte>(late.size()));
        }
      dq = to_dtype(out.want[0], DType::F32);
    }
  }
  static const HostTensor& at(const std::vector<HostTensor>& list, int64_t i) {
    return list[static_cast<size_t>(i)];
  }
  std::vector<HostTensor> keys_, values_;
};

TEST_P(GpuHops, MatchTheCpu) {
  for (int64_t g = 0; g < ring().ranks; ++g) {
    const HostTensor q = random_rows(ring(), Dim::Heads, dtype(), 1 + static_cast<uint64_t>(g));
    const Whole whole = forward(g, q);
    if (HasFatalFailure()) return;
    for (const bool deterministic : {true, false}) backward(g, q, whole, deterministic);
  }
}

INSTANTIATE_TEST_SUITE_P(Ring, GpuHops,
                         testing::Combine(testing::ValuesIn(kRings),
                                          testing::Values(DType::BF16, DType::F16)),
                         [](const auto& info) {
                           const Ring& r = std::get<0>(info.param);
                           return "Of" + std::to_string(r.ranks) + "x" + std::to_string(2 * r.chunk) + "_" +
                                  std::to_string(r.head_dim) + "_" +
                                  (r.ulysses > 1 ? "By" + std::to_string(r.ulysses) + "_" : "") +
                                  std::string(base::to_string(std::get<1>(info.param)));
                         });

// Queries of one ring rank with the keys of all.
void check_whole(const Ring& r, int64_t g, DType dtype, bool packed) {
  const double rounding = dtype == DType::BF16 ? 0x1p-9 : 0x1p-11;
  const HostTensor q = random_rows(r, Dim::Heads, dtype, 1), dout = random_rows(r, Dim::Heads, dtype, 4),
                   k = random_rows(r, Dim::KvHeads, dtype, 2, r.ranks),
                   v = random_rows(r, Dim::KvHeads, dtype, 3, r.ranks);
  HostTensor documents = one_document(r.local_rows()), all = one_document(r.local_rows() * r.ranks);
  if (packed) {  // by position: two documents, then padding
    const base::RowOrder order{r.seq_len(), r.sequences, r.ulysses, 0, r.ulysses};
    for (int64_t s = 0; s < r.sequences; ++s)
      for (int64_t p = 0; p < r.seq_len(); ++p)
        all.index()[order.row_in_whole(s, p)] = p + 9 > r.seq_len() ? -1 : p < r.seq_len() / 3 ? 0 : 1;
    documents = all;
  }
  const OpRun run =
      op_of(graph::kAttention, attrs_of(r, true, packed), {q, k, v, documents, all}, g, r.ranks);
  const Outcome out = run_both(run, g, r.ranks, true, run.in.size(), !packed);
  expect_similar(reals(out.got[0]), reals(out.want[0]), rounding, "o");
  expect_lse(out.got[1], out.want[1]);
  for (const bool deterministic : {true, false}) {
    const graph::Attrs attrs = attrs_of(r, deterministic, packed);
    const OpRun back = op_of(
        graph::kAttentionDx, attrs,
        {dout, q, k, v, to_dtype(out.want[0], dtype), to_dtype(out.want[1], DType::F32), documents, all}, g,
        r.ranks);
    // The gradient of documents is always deterministic.
    const Outcome gradients =
        run_both(back, g, r.ranks, packed || deterministic, back.in.size(), !packed && !deterministic);
    const double delta = carried_error(attrs.real("scale"), r.head_dim, reals(dout), reals(v));
    expect_similar(reals(gradients.got[0]), reals(gradients.want[0]), rounding, "dq",
                   delta * root_mean_square(reals(k)));
    expect_similar(reals(gradients.got[1]), reals(gradients.want[1]), rounding, "dk",
                   delta * root_mean_square(reals(q)));
    expect_similar(reals(gradients.got[2]), reals(gradients.want[2]), rounding, "dv",
                   root_mean_square(reals(dout)));
  }
}

// Rows of several ranks: one document each, and several with padding.
TEST(GpuWholeKeys, OfWholeSequences) {
  for (const Ring& r : {Ring{1, 3, 64, 8, 2, 64, 2}, Ring{1, 2, 50, 4, 4, 128, 4}})
    for (const DType dtype : {DType::BF16, DType::F16})
      for (const bool packed : {false, true}) {
        SCOPED_TRACE(testing::Message() << r.ulysses << " x " << 2 * r.chunk << " rows, "
                                        << base::to_string(dtype) << (packed ? ", documents" : ""));
        check_whole(r, 0, dtype, packed);
      }
}
TEST(GpuWholeKeys, ForPartsOfTheQueries) {
  for (const Ring& r : {Ring{4, 2, 64, 8, 2, 64}, Ring{2, 2, 37, 4, 4, 128}, Ring{2, 3, 40, 4, 1, 64, 2}})
    for (const DType dtype : {DType::BF16, DType::F16})
      for (int64_t g = 0; g < r.ranks; ++g) {
        SCOPED_TRACE(testing::Message() << "rank " << g << " of " << r.ranks << " x " << r.ulysses << ", "
                                        << base::to_string(dtype));
        check_whole(r, g, dtype, false);
      }
}

}  // namespace
}  // namespace quintet::tests
