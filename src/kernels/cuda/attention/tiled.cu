#include <cmath>

#include "kernels/cuda/attention/launch_hopper.h"
#include "kernels/cuda/attention/launch_tiled.h"
#include "kernels/cuda/attention/tiled.h"
#include "kernels/cuda/support/thread_group.cuh"

namespace quintet::kernels::cuda {
namespace {

inline constexpr int kMaskThreads = 1024, kSpanThreads = 256;
inline constexpr int kCosts = 1024;  // cost classes that tiles are sorted by

// Tiles of `size` rows of one side, to be sorted by the number of rows of the other side that they meet.
struct TileOrder {
  uint32_t* order;  // null: none
  int size, tiles;
  int* visible;  // the number of tiles that meet any
};

struct MaskProblem {
  RowRuns q_rows, k_rows;
  MaskRule rule;
  const int32_t *documents, *key_documents;
  Span* spans;
  int32_t* refused;
  bool must;  // no sequence may be refused
  TileOrder queries, keys;
};

// Number of rows of a buffer within a span.
__device__ __forceinline__ int rows_in(const RowRuns& rows, int sequence, Span span) {
  int sum = 0;
  for (int run = 0; run < rows.runs; ++run) {
    const int begin = rows.run(sequence, run).position;
    sum += greater(0, lesser(span.end, begin + rows.length) - greater(span.begin, begin));
  }
  return sum;
}

// The spans of a sequence's documents, a thread per position. Ids do not decrease within a sequence, so both
// ends of a document are found by bisection; padding, whose ids are negative, comes last. Where this does not
// hold, spans are still within the sequence, and the sequence is refused.
__global__ void __launch_bounds__(kSpanThreads) find_spans(const __grid_constant__ MaskProblem p) {
  await_previous();
  const int sequence = static_cast<int>(blockIdx.y), length = p.k_rows.seq_len,
            at = static_cast<int>(blockIdx.x) * kSpanThreads + static_cast<int>(threadIdx.x);
  if (at >= length) return;
  const auto id = [&](int position) {
    return static_cast<uint32_t>(p.key_documents[p.k_rows.row_in_whole(sequence, position)]);
  };
  const auto first_from = [&](int low, int high, uint32_t least) {  // the first position with such an id
    while (low < high) {
      const int middle = (low + high) / 2;
      if (id(middle) >= least)
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  };
  constexpr uint32_t kPadding = 1u << 31;
  const uint32_t own = id(at);
  bool bad = at > 0 && id(at - 1) > own;
  if (own >= kPadding) {
    const int begin = first_from(0, at, kPadding);
    p.spans[sequence * length + at] = {begin, begin};
  } else {
    p.spans[sequence * length + at] = {first_from(0, at, own), first_from(at + 1, length, own + 1)};
  }
  // The queries' own ids must match those of the same positions.
  if (at < p.q_rows.runs * p.q_rows.length) {
    const RowRuns::Run run = p.q_rows.run(sequence, at / p.q_rows.length);
    const int offset = at % p.q_rows.length;
    bad |= static_cast<uint32_t>(p.documents[run.row + offset]) != id(run.position + offset);
  }
  if (bad && p.must) __trap();
  if (bad) p.refused[sequence] = 1;
}

// The first block sorts query tiles, the second key tiles, by cost. Tiles of equal cost are in any order; no
// result depends on it.
__global__ void __launch_bounds__(kMaskThreads) sort_tiles(const __grid_constant__ MaskProblem p) {
  await_previous();
  __shared__ uint32_t counts[kCosts];
  const bool by_keys = blockIdx.x > 0;
  const int thread = static_cast<int>(threadIdx.x), length = p.k_rows.seq_len;
  const TileOrder& t = by_keys ? p.keys : p.queries;
  const RowRuns &own = by_keys ? p.k_rows : p.q_rows, &other = by_keys ? p.q_rows : p.k_rows;
  const int step = (length + kCosts - 1) / kCosts;
  const auto cost_class = [&](int number) {  // 0: the most expensive; the last: those that meet nothing
    const RowTile tile = row_tile(own, t.size, number);
    const auto seen = [&](int position) {
      const Span document = p.spans[tile.sequence * length + position];
      return by_keys ? queries_of(position, document, p.rule) : keys_of(position, document, p.rule);
    };
    const Span meets{seen(tile.position).begin, seen(tile.position + tile.count - 1).end};
    return kCosts - 1 - lesser((rows_in(other, tile.sequence, meets) + step - 1) / step, kCosts - 1);
  };
  for (int i = thread; i < kCosts; i += kMaskThreads) counts[i] = 0;
  __syncthreads();
  for (int i = thread; i < t.tiles; i += kMaskThreads) atomicAdd(&counts[cost_class(i)], 1u);
  __syncthreads();
  // First index of each class: a sum over the lower ones, 32 classes per lane of the first warp.
  if (thread < 32) {
    constexpr int kEach = kCosts / 32;
    uint32_t sum = 0;
    for (int i = 0; i < kEach; ++i) sum += counts[thread * kEach + i];
    uint32_t before = sum;
    for (int d = 1; d < 32; d *= 2) {
      const uint32_t lower = __shfl_up_sync(0xffffffffu, before, d);
      if (thread >= d) before += lower;
    }
    before -= sum;
    for (int i = 0; i < kEach; ++i) {
      const uint32_t own_count = counts[thread * kEach + i];
      counts[thread * kEach + i] = before;
      before += own_count;
    }
  }
  __syncthreads();
  if (thread == 0) *t.visible = static_cast<int>(counts[kCosts - 1]);
  __syncthreads();
  for (int i = thread; i < t.tiles; i += kMaskThreads)
    t.order[atomicAdd(&counts[cost_class(i)], 1u)] = static_cast<uint32_t>(i);
}

// dsinks[head] = -sum over rows of exp(sink - lse) delta, a block per head in a fixed order.
__global__ void __launch_bounds__(1024)
    sink_gradients(const float* sinks, const float* lse, const float* delta, int64_t rows, float* dsinks) {
  await_previous();
  __shared__ float shared[32];
  const float sink = sinks[blockIdx.x];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * rows;
  float sum = 0.0f;
  for (int64_t i = threadIdx.x; i < rows; i += 1024) sum -= expf(sink - lse[first + i]) * delta[first + i];
  sum = block_fold(sum, shared, Plus{});
  if (threadIdx.x == 0) dsinks[blockIdx.x] = sum;
}

// The same with lse and delta in the row order of Hopper's kernels.
__global__ void __launch_bounds__(1024)
    packed_sink_gradients(const float* sinks, const float* stats, int64_t pitch, int group, int64_t rows,
                          float* dsinks) {
  await_previous();
  __shared__ float shared[32];
  const int head = static_cast<int>(blockIdx.x);
  const float sink = sinks[head] * kLog2E;
  const float* const from = stats + head / group * pitch * 2;
  float sum = 0.0f;
  for (int64_t i = threadIdx.x; i < rows; i += 1024) {
    const float* const row = from + stats_index(i * group + head % group);
    sum -= exp2f(sink - row[0]) * row[2];
  }
  sum = block_fold(sum, shared, Plus{});
  if (threadIdx.x == 0) dsinks[head] = sum;
}

template <class P>
P* at(void* workspace, int64_t offset) {
  return reinterpret_cast<P*>(static_cast<std::byte*>(workspace) + offset);
}

// Everything except the tensors and the packing.
TiledProblem problem_of(const AttentionShape& s, const TiledOptions& options, const TiledScratch& scratch,
                        void* workspace) {
  TiledProblem p{};
  p.q_rows = RowRuns(s.q_rows);
  p.k_rows = RowRuns(s.k_rows);
  p.q_count = static_cast<int>(s.q_rows.rows());
  p.k_count = static_cast<int>(s.k_rows.rows());
  p.heads = static_cast<int>(s.heads);
  p.kv_heads = static_cast<int>(s.kv_heads);
  p.kv_span = p.kv_heads;
  p.group = p.heads / p.kv_heads;
  p.head_dim = static_cast<int>(s.head_dim);
  p.value_dim = static_cast<int>(s.value_dim);
  p.q_stride = s.q_stride;
  p.k_stride = s.k_stride;
  p.v_stride = s.v_stride;
  p.o_stride = s.o_stride;
  p.dq_stride = s.dq_stride;
  p.dk_stride = s.dk_stride;
  p.dv_stride = s.dv_stride;
  p.rule = {static_cast<int>(s.window), options.causal};
  if (s.documents != nullptr) {
    p.documents = at<Span>(workspace, scratch.spans);
    p.refused = at<int32_t>(workspace, scratch.refused);
  }
  p.scale = static_cast<float>(s.scale);
  p.soft_cap = static_cast<float>(options.soft_cap);
  p.sinks = options.sinks;
  if (s.dropout_p > 0) {
    p.threshold = keep_threshold(s.dropout_p);
    p.kept = static_cast<float>(1.0 / (1.0 - s.dropout_p));
    p.dropout_key = s.dropout_key;
    p.samples = s.samples;
    p.positions = s.positions;
    p.key_positions = s.key_positions;
    p.head_offset = static_cast<uint32_t>(s.head_offset);
  }
  return p;
}

// The same problem for the kernels that accept any documents, for the sequences refused here.
AttentionShape refused_part(const AttentionShape& s, const int32_t* refused) {
  AttentionShape rest = s;
  rest.needed = refused;
  rest.needed_each = true;
  return rest;
}

int query_tiles(const AttentionShape& s, int tokens) {
  return static_cast<int>(tile_count(s.q_rows.run_length(), s.q_rows.runs(), s.q_rows.sequences, tokens));
}
int key_tiles(const AttentionShape& s, int keys) {
  return static_cast<int>(tile_count(s.k_rows.run_length(), s.k_rows.runs(), s.k_rows.sequences, keys));
}

void launch_spans(const AttentionShape& s, const TiledProblem& p, const TiledScratch& scratch,
                  void* workspace, bool must, int tile_tokens, int tile_keys, Stream stream) {
  if (s.documents == nullptr) return;
  MaskProblem m{.q_rows = p.q_rows,
                .k_rows = p.k_rows,
                .rule = p.rule,
                .documents = s.documents,
                .key_documents = s.key_documents,
                .spans = at<Span>(workspace, scratch.spans),
                .refused = at<int32_t>(workspace, scratch.refused),
                .must = must,
                .queries = {at<uint32_t>(workspace, scratch.q_order), tile_tokens,
                            query_tiles(s, tile_tokens), at<int>(workspace, scratch.visible)},
                .keys = {}};
  if (tile_keys > 0)
    m.keys = {at<uint32_t>(workspace, scratch.k_order), tile_keys, key_tiles(s, tile_keys),
              at<int>(workspace, scratch.visible) + 1};
  const auto sequences = static_cast<unsigned>(s.k_rows.sequences);
  check(cudaMemsetAsync(m.refused, 0, sequences * sizeof(int32_t), stream), "attention masks");
  find_spans<<<dim3(static_cast<unsigned>(divide_up(s.k_rows.seq_len, kSpanThreads)), sequences),
               kSpanThreads, 0, stream>>>(m);
  check_launch("attention masks");
  const unsigned sides = tile_keys > 0 ? 2 : 1;
  sort_tiles<<<sides, kMaskThreads, 0, stream>>>(m);
  check_launch("attention masks");
}

}  // namespace

bool TiledAttention::leads(const AttentionShape& s, bool backward) {
  const int64_t least = s.head_dim == 64 ? 4096 : s.head_dim == 128 && !backward ? 8192 : 0;
  return least > 0 && s.head_dim == s.value_dim && s.q_rows.ranks == 1 && s.q_rows.seq_len >= least &&
         s.heads / s.kv_heads <= 64 && s.dropout_p == 0 && hopper_blocks() > 0;
}

template <class T, class O>
void TiledAttention::forward(const AttentionShape& s, const TiledOptions& options, const T* q, const T* k,
                             const T* v, const float* o_before, const float* lse_before, O* o, float* lse,
                             void* workspace, Stream stream) {
  const int64_t rows = s.q_rows.rows();
  if (rows <= 0 || s.heads <= 0) return;
  const HeadSizes sizes = head_sizes(s.head_dim, s.value_dim);
  const TiledScratch scratch = tiled_scratch(s, false);
  TiledProblem p = problem_of(s, options, scratch, workspace);
  const int blocks = !options.portable && suits_hopper(p) ? hopper_blocks() : 0;
  p.packing = HeadPacking(p.group, forward_rows(sizes));
  const int tokens = blocks > 0 ? hopper_forward_tokens(sizes, p) : p.packing.tokens;
  launch_spans(s, p, scratch, workspace, options.any(), tokens, 0, stream);
  if (s.documents != nullptr) p.order = at<uint32_t>(workspace, scratch.q_order);
  p.q = q;
  p.k = k;
  p.v = v;
  p.o_before = o_before;
  p.lse_before = lse_before;
  p.wide = std::is_same_v<O, float>;
  p.o_out = o;
  p.lse_out = lse;
  p.in_place = p.wide && o_before != nullptr && static_cast<const void*>(o_before) == o &&
               lse_before == lse && options.sinks == nullptr;
  // Hopper's kernels write the other tiles too, but elsewhere.
  if (s.documents != nullptr && (p.in_place || blocks > 0)) p.visible = at<int>(workspace, scratch.visible);
  if (blocks > 0)
    launch_hopper_forward<T>(sizes, p, blocks, query_tiles(s, tokens), stream);
  else
    launch_tiled_forward<T>(sizes, p, query_tiles(s, tokens), stream);
  if (p.refused == nullptr || options.any()) return;
  const AttentionShape rest = refused_part(s, p.refused);
  if constexpr (std::is_same_v<O, float>)
    attention_hop<T>(rest, q, k, v, o_before, lse_before, o, lse, stream);
  else
    attention<T>(rest, q, k, v, o, lse, stream);
}

template <class T, class O>
void TiledAttention::backward(const AttentionShape& s, const TiledOptions& options, const T* dout, const T* q,
                              const T* k, const T* v, const T* o, const float* lse, const float* dq_before,
                              O* dq, T* dk, T* dv, void* workspace, Stream stream) {
  const HeadSizes sizes = head_sizes(s.head_dim, s.value_dim);
  const TiledScratch scratch = tiled_scratch(s, true);
  TiledProblem p = problem_of(s, options, scratch, workspace);
  const int blocks = !options.portable && suits_hopper(p) ? hopper_blocks() : 0;
  p.packing = HeadPacking(p.group, dq_rows(sizes));
  const int tokens = blocks > 0 ? hopper_dq_tokens(p) : p.packing.tokens,
            keys = blocks > 0 ? hopper_dkv_keys(sizes) : dkv_keys(sizes);
  launch_spans(s, p, scratch, workspace, options.any(), tokens, keys, stream);
  p.q = q;
  p.k = k;
  p.v = v;
  p.o = o;
  p.dout = dout;
  p.lse = lse;
  p.delta = p.delta_out = at<float>(workspace, scratch.delta);
  p.stats_out = at<float>(workspace, scratch.delta);
  p.stats_pitch = divide_up(s.q_rows.rows() * p.group, 2) * 2;
  p.items_taken = at<int>(workspace, scratch.items);
  p.dq_before = dq_before;
  p.wide = std::is_same_v<O, float>;
  p.dq = dq;
  // No key tile reads lse and delta of rows that see nothing, but the gradients of sinks do.
  p.in_place = p.wide && dq_before != nullptr && static_cast<const void*>(dq_before) == dq &&
               options.dsinks == nullptr;
  p.dk = dk;
  p.dv = dv;
  const bool fused = blocks > 0 && fuses_backward(s) && options.soft_cap == 0;
  if (fused) {
    if (s.documents != nullptr) p.order = at<uint32_t>(workspace, scratch.k_order);
    p.dq_sum = at<float>(workspace, scratch.dq_sum);
    launch_hopper_fused<T>(sizes, p, blocks, key_tiles(s, keys), fused_kv_heads(s), stream);
  }
  if (s.q_rows.rows() > 0 && !fused) {
    if (s.documents != nullptr) p.order = at<uint32_t>(workspace, scratch.q_order);
    TiledProblem by_queries = p;
    if (s.documents != nullptr && p.in_place) by_queries.visible = at<int>(workspace, scratch.visible);
    if (blocks > 0)
      launch_hopper_dq<T>(sizes, by_queries, blocks, query_tiles(s, tokens), stream);
    else
      launch_tiled_dq<T>(sizes, by_queries, query_tiles(s, tokens), stream);
  }
  if (s.q_rows.rows() > 0 && options.dsinks != nullptr) {
    const auto heads = static_cast<unsigned>(s.heads);
    if (blocks > 0)
      packed_sink_gradients<<<heads, 1024, 0, stream>>>(options.sinks, p.stats_out, p.stats_pitch, p.group,
                                                        s.q_rows.rows(), options.dsinks);
    else
      sink_gradients<<<heads, 1024, 0, stream>>>(options.sinks, lse, p.delta, s.q_rows.rows(),
                                                 options.dsinks);
    check_launch("attention_backward");
  }
  if (s.k_rows.rows() > 0 && !fused) {
    p.packing = HeadPacking(p.group, dkv_rows(sizes));
    if (s.documents != nullptr) p.order = at<uint32_t>(workspace, scratch.k_order);
    if (blocks > 0)
      launch_hopper_dkv<T>(sizes, p, blocks, key_tiles(s, keys), stream);
    else
      launch_tiled_dkv<T>(sizes, p, key_tiles(s, keys), stream);
  }
  if (p.refused == nullptr || options.any()) return;
  const AttentionShape rest = refused_part(s, p.refused);
  if constexpr (std::is_same_v<O, float>)
    attention_hop_backward<T>(rest, dout, q, k, v, o, lse, dq_before, dq, dk, dv, p.delta_out, stream);
  else
    attention_backward<T>(rest, dout, q, k, v, o, lse, dq, dk, dv, p.delta_out, stream);
}

#define INSTANTIATE(T, O)                                                                                 \
  template void TiledAttention::forward<T, O>(const AttentionShape&, const TiledOptions&, const T*,       \
                                              const T*, const T*, const float*, const float*, O*, float*, \
                                              void*, Stream);                                             \
  template void TiledAttention::backward<T, O>(const AttentionShape&, const TiledOptions&, const T*,      \
                                               const T*, const T*, const T*, const T*, const float*,      \
                                               const float*, O*, T*, T*, void*, Stream);
INSTANTIATE(Bf16, Bf16)
INSTANTIATE(Bf16, float)
INSTANTIATE(F16, F16)
INSTANTIATE(F16, float)
#undef INSTANTIATE

}  // namespace quintet::kernels::cuda
