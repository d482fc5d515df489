// Hops of ring attention: the three kinds, each with its share of the query-key pairs.
#include "kernels/cuda/attention/hops.h"

#include "cuda/harness.h"
#include "kernels/attention_interval.h"
#include "kernels/attention_part.h"
#include "kernels/cuda/attention/merge.h"
#include "kernels/cuda/attention/tiled.h"

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

namespace {

// Pairs that are visible in a hop, with documents of `length` tokens; 0: one per sequence.
double visible_pairs(const k::AttentionShape& s, int64_t length) {
  const kernels::RowRuns q(s.q_rows), keys(s.k_rows);
  const int step = static_cast<int>(length > 0 ? length : s.q_rows.seq_len);
  double pairs = 0;
  for (int run = 0; run < q.runs; ++run)
    for (int i = 0; i < q.length; ++i) {
      const int position = q.run(0, run).position + i, begin = position / step * step;
      for (int other = 0; other < keys.runs; ++other) {
        const int from = keys.run(0, other).position;
        pairs += std::max(0, std::min(position + 1, from + keys.length) - std::max(begin, from));
      }
    }
  return pairs * q.sequences;
}

// The same hops on Quintet's own kernels, which merge and accumulate themselves, also with packed documents.
void own_hops(const k::AttentionShape& dense, bool first, const char* what) {
  const int64_t rows = dense.q_rows.rows(), kv = dense.k_rows.rows();
  auto *q = random<Bf16>(rows * dense.q_stride), *key = random<Bf16>(kv * dense.k_stride),
       *v = random<Bf16>(kv * dense.v_stride), *dout = random<Bf16>(rows * dense.o_stride),
       *o = random<Bf16>(rows * dense.o_stride), *dk = take<Bf16>(kv * dense.k_stride),
       *dv = take<Bf16>(kv * dense.v_stride);
  auto *sum_o = random<float>(rows * dense.o_stride), *lse = random<float>(rows * dense.heads),
       *dq = random<float>(rows * dense.q_stride);
  const float *const o_before = first ? nullptr : sum_o, *const lse_before = first ? nullptr : lse,
                     *const dq_before = first ? nullptr : dq;
  for (const int64_t length : {int64_t{0}, int64_t{3000}}) {
    k::AttentionShape s = dense;
    if (length > 0) {
      const kernels::RowRuns own(s.q_rows);
      std::vector<int32_t> ids(static_cast<size_t>(rows)),
          all(static_cast<size_t>(s.q_rows.seq_len * s.q_rows.sequences));
      for (int n = 0; n < own.sequences; ++n) {
        for (int p = 0; p < own.seq_len; ++p)
          all[static_cast<size_t>(own.row_in_whole(n, p))] = static_cast<int32_t>(p / length);
        for (int run = 0; run < own.runs; ++run)
          for (int i = 0; i < own.length; ++i)
            ids[static_cast<size_t>(own.run(n, run).row + i)] =
                static_cast<int32_t>((own.run(n, run).position + i) / length);
      }
      s.documents = integers(ids);
      s.key_documents = integers(all);
    }
    const double product =
        2.0 * static_cast<double>(s.heads * s.head_dim) * visible_pairs(s, length);  // as in hops()
    k::AttentionShape fixed = s;
    fixed.deterministic = true;
    void* space = take<char>(
        std::max(k::TiledAttention::workspace_bytes(s, false), k::TiledAttention::workspace_bytes(s, true)));
    const auto rate = [](double flops, const std::function<void(int)>& f) {
      return static_cast<int>(flops / time_rested(f) / 1e9);
    };
    const auto backward = [&](const k::AttentionShape& shape) {
      return rate(5 * product, [&](int) {
        k::TiledAttention::backward<Bf16, float>(shape, {}, dout, q, key, v, o, lse, dq_before, dq, dk, dv,
                                                 space, stream);
      });
    };
    const int forward = rate(2 * product, [&](int) {
      k::TiledAttention::forward<Bf16, float>(s, {}, q, key, v, o_before, lse_before, sum_o, lse, space,
                                              stream);
    });
    std::printf("| own kernels: %s%s | %d | | %d | | %d | |\n", what,
                length > 0 ? ", documents of 3000 tokens" : "", forward, backward(s), backward(fixed));
  }
}

}  // namespace

// Queries of ring rank 1 of 4. A rank's own keys are the first hop, the others have previous hops in place.
// Next to each, cuDNN alone: the difference is the cost of merging, accumulating and clearing.
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
      return std::to_string(static_cast<int>(flops / time_rested(f) / 1e9));
    };
    std::string rates[5] = {"none", "none", "none", "none", "none"};
    const bool first = kind.source == 1;
    const float *const o_before = first ? nullptr : sum_o, *const lse_before = first ? nullptr : lse,
                       *const dq_before = first ? nullptr : dq;
    k::Attention library;
    k::AttentionHops ring(library);
    if (ring.prepare(s, kMasks, false, bytes, base::DType::BF16)) {
      rates[0] = rate(2 * product, [&](int) {
        ring.forward(s, kMasks, q, key, v, o_before, lse_before, sum_o, lse, space, bytes, stream);
      });
      rates[1] = rate(2 * product,
                      [&](int) { library.forward(s, kMasks, q, key, v, o, lse, space, bytes, stream); });
    }
    const auto backward = [&](const k::AttentionShape& shape) {
      return rate(5 * product, [&](int) {
        ring.backward(shape, kMasks, dout, q, key, v, o, lse, dq_before, dq, dk, dv, space, bytes, stream);
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
    used = 0;
    own_hops(s, first, kind.what);
  }
}

}  // namespace quintet::bench
