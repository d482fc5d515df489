// Hops of ring attention: the three kinds, each with its share of the query-key pairs.
#include "kernels/cuda/attention/hops.h"

#include "cuda/harness.h"
#include "kernels/attention_part.h"
#include "kernels/cuda/attention/merge.h"

namespace quintet::bench {

// The part of a hop that is not cuDNN: merging its results with the previous hops in place.
void hop_merges() {
  constexpr int64_t kRows = 16384, kHeads = 32, kDim = 128, kAll = kRows * kHeads * kDim;
  used = 0;
  k::AttentionShape s;
  s.q_rows = s.k_rows = {.seq_len = 4096, .sequences = kRows / 4096};
  s.heads = s.kv_heads = kHeads;
  s.head_dim = s.value_dim = kDim;
  s.o_stride = s.dq_stride = kHeads * kDim;
  const kernels::AttentionPart::Rows part{.first = 0, .count = 4096, .pitch = 4096};
  auto* hop = random<Bf16>(kAll);
  auto *sum = random<float>(kAll), *hop_lse = random<float>(kRows * kHeads),
       *lse = random<float>(kRows * kHeads);
  const auto elements = static_cast<double>(kAll), statistics = static_cast<double>(kRows * kHeads);
  report("merge_hop 16384 x 32 x 128", (2 + 8) * elements + 12 * statistics, [=](int) {
    k::merge_hop<Bf16, float>(s, part, hop, kHeads * kDim, hop_lse, sum, lse, sum, lse, stream);
  });
  report("add_hop_dq 16384 x 32 x 128", (2 + 8) * elements,
         [=](int) { k::add_hop_dq<Bf16, float>(s, part, hop, kHeads * kDim, sum, sum, stream); });
}

// Queries of ring rank 1 of 4, with previous hops in place. Next to each, cuDNN alone: the difference is the
// cost of merging, accumulating and clearing.
void hops() {
  constexpr int64_t kSequences = 4, kLocal = 4096, kRanks = 4, kHeads = 32, kKvHeads = 8, kDim = 128;
  constexpr auto kMasks = k::AttentionMasks::Dense;
  struct Kind {
    const char* what;
    int64_t source;
  };
  const Kind kinds[] = {
      {"own keys, causal", 1}, {"earlier keys: half of them", 0}, {"later keys: half of the queries", 2}};
  std::printf(
      "\n| hop of %ld x %ld rows, heads %ld / %ld x %ld | forward TFLOP/s | cuDNN alone | backward TFLOP/s | "
      "cuDNN alone | deterministic | scratch MB |\n|---|---|---|---|---|---|---|\n",
      kSequences, kLocal, kHeads, kKvHeads, kDim);
  for (const Kind& kind : kinds) {
    used = 0;
    k::AttentionShape s;
    s.q_rows = {.seq_len = kLocal * kRanks, .sequences = kSequences, .ranks = kRanks, .first = 1, .count = 1};
    s.k_rows = s.q_rows;
    s.k_rows.first = kind.source;
    s.heads = kHeads;
    s.kv_heads = kKvHeads;
    s.head_dim = s.value_dim = kDim;
    s.q_stride = s.dq_stride = s.o_stride = kHeads * kDim;
    s.k_stride = s.dk_stride = s.v_stride = s.dv_stride = kKvHeads * kDim;
    s.scale = 0.1;
    k::AttentionShape fixed = s;
    fixed.deterministic = true;
    const int64_t rows = s.q_rows.rows();
    auto *q = random<Bf16>(rows * s.q_stride), *key = random<Bf16>(rows * s.k_stride),
         *v = random<Bf16>(rows * s.v_stride), *dout = random<Bf16>(rows * s.o_stride),
         *o = random<Bf16>(rows * s.o_stride), *one_dq = take<Bf16>(rows * s.q_stride),
         *dk = take<Bf16>(rows * s.k_stride), *dv = take<Bf16>(rows * s.v_stride);
    auto *sum_o = random<float>(rows * s.o_stride), *lse = random<float>(rows * kHeads),
         *dq = random<float>(rows * s.q_stride);
    const int64_t bytes = std::max({k::AttentionHops::workspace_bytes(s, kMasks, false),
                                    k::AttentionHops::workspace_bytes(s, kMasks, true),
                                    k::AttentionHops::workspace_bytes(fixed, kMasks, true)});
    void* space = take<char>(bytes);
    const kernels::AttentionPart part = *kernels::visible_part(s);
    const double pairs =
        static_cast<double>(kSequences) * (part.causal ? static_cast<double>(kLocal) * (kLocal + 1) / 2
                                                       : static_cast<double>(part.q.count * part.k.count));
    const double product = 2.0 * kHeads * kDim * pairs;  // two matmuls forward, five backward
    const auto rate = [](double flops, const std::function<void(int)>& f) {
      return std::to_string(static_cast<int>(flops / time_of(f, 1) / 1e9));
    };
    std::string rates[5] = {"none", "none", "none", "none", "none"};
    k::Attention library;
    k::AttentionHops ring(library);
    if (ring.prepare(s, kMasks, false, bytes, base::DType::BF16)) {
      rates[0] = rate(2 * product, [&](int) {
        ring.forward(s, kMasks, q, key, v, sum_o, lse, sum_o, lse, space, bytes, stream);
      });
      rates[1] = rate(2 * product,
                      [&](int) { library.forward(s, kMasks, q, key, v, o, lse, space, bytes, stream); });
    }
    const auto backward = [&](const k::AttentionShape& shape) {
      return rate(5 * product, [&](int) {
        ring.backward(shape, kMasks, dout, q, key, v, o, lse, dq, dq, dk, dv, space, bytes, stream);
      });
    };
    if (ring.prepare(s, kMasks, true, bytes, base::DType::BF16)) {
      rates[2] = backward(s);
      rates[3] = rate(5 * product, [&](int) {
        library.backward(s, kMasks, dout, q, key, v, o, lse, one_dq, dk, dv, space, bytes, stream);
      });
    }
    if (ring.prepare(fixed, kMasks, true, bytes, base::DType::BF16)) rates[4] = backward(fixed);
    std::printf("| %s | %s | %s | %s | %s | %s | %ld |\n", kind.what, rates[0].c_str(), rates[1].c_str(),
                rates[2].c_str(), rates[3].c_str(), rates[4].c_str(), bytes >> 20);
  }
}

}  // namespace quintet::bench
