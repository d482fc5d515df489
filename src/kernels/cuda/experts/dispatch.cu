#include "kernels/cuda/elementwise/each.cuh"
#include "kernels/cuda/experts/dispatch.h"
#include "kernels/cuda/support/thread_group.cuh"

namespace quintet::kernels::cuda {
namespace {

inline constexpr int kThreads = 256;

unsigned blocks_for(int64_t n) { return static_cast<unsigned>(divide_up(n, kThreads)); }
__device__ __forceinline__ int64_t thread_index() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

// Marks all pairs as without a slot. (A memset would do, but the next kernel could not start early after it.)
__global__ void __launch_bounds__(kThreads) no_slots_kernel(int32_t* slot_of, int64_t pairs) {
  await_previous();
  const int64_t p = thread_index();
  if (p < pairs) slot_of[p] = -1;
}
__global__ void __launch_bounds__(kThreads)
    slots_kernel(const int32_t* order, int64_t slots, int32_t* slot_of) {
  await_previous();
  const int64_t s = thread_index();
  if (s < slots && order[s] >= 0) slot_of[order[s]] = static_cast<int32_t>(s);
}

// Slots of a row's pairs are looked up kSlots at a time, so that as many rows are in flight.
inline constexpr int kSlots = 4;
struct SlotsOfRows {
  const int32_t* slot_of;
  int64_t choices, pairs;
  // The slots of the pairs from `first` up to `end`; negative where there is none.
  __device__ __forceinline__ void find(int64_t first, int64_t end, int64_t (&slots)[kSlots]) const {
#pragma unroll
    for (int c = 0; c < kSlots; ++c) slots[c] = first + c < end ? slot_of[first + c] : -1;
  }
};

// A row is read once, whatever the number of its slots. W is the word of the copy; nothing is reused
// soon.
template <class W>
struct SpreadRows {
  const W* x;
  SlotsOfRows rows;
  W* y;
  int64_t words;
  template <int V>
  __device__ W load(int64_t r, int64_t i) const {
    return __ldcs(x + r * words + i);
  }
  template <int V>
  __device__ void store(int64_t r, int64_t i, W value) const {
    const int64_t end = (r + 1) * rows.choices;
    for (int64_t first = r * rows.choices; first < end; first += kSlots) {
      int64_t slots[kSlots];
      rows.find(first, end, slots);
#pragma unroll
      for (int c = 0; c < kSlots; ++c)
        if (slots[c] >= 0) __stcs(y + slots[c] * words + i, value);
    }
  }
};

// One warp per slot; only slots without a pair need work.
template <class W>
__global__ void __launch_bounds__(kThreads)
    clear_unused_kernel(const int32_t* order, int64_t slots, W* y, int64_t words) {
  await_previous();
  const int64_t slot = thread_index() / 32;
  if (slot >= slots || order[slot] >= 0) return;
  for (int64_t i = threadIdx.x % 32; i < words; i += 32) y[slot * words + i] = W{};
}

// R rows at a time: either one, or as many as have kSlots pairs.
template <class T, int R, bool kAdds>
struct SumSlots {
  const T* y;
  SlotsOfRows rows;
  const T* addend;  // with kAdds
  T* x;
  int64_t n;
  template <int V>
  struct Sums {
    Vals<Stat<T>, V> row[R];
  };
  template <int V>
  __device__ Sums<V> load(int64_t r, int64_t i) const {
    Sums<V> sums = {};
    Pack<T, V> more[kAdds ? R : 1];
    if constexpr (kAdds) {
#pragma unroll
      for (int j = 0; j < R; ++j)
        if (has(r, j)) more[j] = fetch<V>(addend + (r * R + j) * n + i);
    }
    const int64_t begin = r * R * rows.choices, end = begin + R * rows.choices;
    for (int64_t first = begin; first < end; first += kSlots) {
      int64_t slots[kSlots];
      rows.find(first, end < rows.pairs ? end : rows.pairs, slots);
      Pack<T, V> in[kSlots];
#pragma unroll
      for (int c = 0; c < kSlots; ++c)
        if (slots[c] >= 0) in[c] = fetch<V>(y + slots[c] * n + i);
#pragma unroll
      for (int c = 0; c < kSlots; ++c) {
        if (slots[c] < 0) continue;
        const auto v = values<T, V>(in[c]);
        auto& sum = sums.row[c * R / kSlots];
#pragma unroll
        for (int k = 0; k < V; ++k) sum.v[k] += v.v[k];
      }
    }
    if constexpr (kAdds) {
#pragma unroll
      for (int j = 0; j < R; ++j) {
        if (!has(r, j)) continue;
        const auto v = values<T, V>(more[j]);
#pragma unroll
        for (int k = 0; k < V; ++k) sums.row[j].v[k] += v.v[k];
      }
    }
    return sums;
  }
  template <int V>
  __device__ void store(int64_t r, int64_t i, const Sums<V>& sums) const {
#pragma unroll
    for (int j = 0; j < R; ++j)
      if (has(r, j)) cuda::store<V>(x + (r * R + j) * n + i, sums.row[j]);
  }
  __device__ __forceinline__ bool has(int64_t r, int j) const {
    return j == 0 || (r * R + j) * rows.choices < rows.pairs;
  }
};

template <class S>
__global__ void __launch_bounds__(kThreads)
    pack_weights_kernel(const S* weights, const int32_t* order, bool zero_unused, S* packed, int64_t slots) {
  await_previous();
  const int64_t s = thread_index();
  if (s >= slots) return;
  if (order[s] >= 0)
    packed[s] = weights[order[s]];
  else if (zero_unused)
    packed[s] = S(0);
}
template <class S>
__global__ void __launch_bounds__(kThreads)
    unpack_weights_kernel(const S* packed, const int32_t* order, int64_t slots, bool adds, S* weights) {
  await_previous();
  const int64_t s = thread_index();
  if (s < slots && order[s] >= 0) weights[order[s]] = adds ? weights[order[s]] + packed[s] : packed[s];
}

// Exclusive prefix sum of value(i) for every i below n, and the total after the last. One block of kThreads,
// each thread with a run of neighbours; `totals` has a number for every warp.
template <class F, class G>
__device__ void scan(int64_t n, const F& value, const G& put, int64_t* totals) {
  const int64_t each = (n + kThreads - 1) / kThreads, begin = threadIdx.x * each;
  const int64_t end = begin + each < n ? begin + each : n;
  int64_t own = 0;
  for (int64_t i = begin; i < end; ++i) own += value(i);
  int64_t at = own;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const int64_t left = __shfl_up_sync(0xffffffffu, at, d);
    if (threadIdx.x % 32 >= d) at += left;
  }
  __syncthreads();  // the totals may still be read by the previous call
  if (threadIdx.x % 32 == 31) totals[threadIdx.x / 32] = at;
  __syncthreads();
  at -= own;
  for (unsigned w = 0; w < threadIdx.x / 32; ++w) at += totals[w];
  for (int64_t i = begin; i < end; ++i) {
    put(i, at);
    at += value(i);
  }
  if (threadIdx.x == kThreads - 1) put(n, at);
}

// The rows of `count` that are in [first, last), `arrived` being before them.
struct RowsOfPass {
  int64_t begin, end;
};
__device__ __forceinline__ RowsOfPass rows_of_pass(int64_t arrived, int64_t count, int64_t first,
                                                   int64_t rows) {
  const auto clamped = [&](int64_t at) { return at < 0 ? 0 : at < count ? at : count; };
  return {clamped(first - arrived), clamped(first + rows - arrived)};
}

// One block. before[i]: rows before count i, by expert and then by sender, over all ranks. from[e] and to[e]:
// the first slot of expert e in the pass, among all slots and among those of the pass; to[all_experts]: their
// number.
__global__ void __launch_bounds__(kThreads)
    split_counts_kernel(PassShape s, const int32_t* counts, const int32_t* pass, int32_t* send,
                        int32_t* received, int32_t* passes, int64_t* before, int64_t* from, int64_t* to) {
  await_previous();
  __shared__ int64_t totals[kThreads / 32];
  __shared__ int most;
  const int64_t n = s.members * s.all_experts, first = (pass != nullptr ? *pass : 0) * s.rows;
  const int64_t of_rank = s.experts * s.members;  // counts of the experts of one rank
  const int32_t* const own = counts + s.position * s.all_experts;
  const auto count_at = [&](int64_t i) {
    return static_cast<int64_t>(counts[i % s.members * s.all_experts + i / s.members]);
  };
  if (threadIdx.x == 0) most = 1;
  scan(
      n, count_at, [&](int64_t i, int64_t at) { before[i] = at; }, totals);
  scan(
      s.all_experts, [&](int64_t e) { return static_cast<int64_t>(own[e]); },
      [&](int64_t e, int64_t at) { from[e] = at; }, totals);
  __syncthreads();
  for (int64_t i = threadIdx.x; i < n; i += kThreads) {
    const int64_t e = i / s.members, m = i % s.members;
    const int64_t count = count_at(i);
    const RowsOfPass r = rows_of_pass(before[i] - before[i / of_rank * of_rank], count, first, s.rows);
    if (e / s.experts == s.position / s.copies)
      received[m * s.experts + e % s.experts] = static_cast<int32_t>(r.end - r.begin);
    if (m == s.position) {
      send[e] = static_cast<int32_t>(r.end - r.begin);
      from[e] += r.begin;
    }
  }
  for (int64_t i = threadIdx.x * of_rank; i < n; i += kThreads * of_rank)
    atomicMax(&most, static_cast<int>((before[i + of_rank] - before[i] + s.rows - 1) / s.rows));
  __syncthreads();
  scan(
      s.all_experts, [&](int64_t e) { return static_cast<int64_t>(send[e]); },
      [&](int64_t e, int64_t at) { to[e] = at; }, totals);
  if (threadIdx.x == 0) *passes = most;
}

__global__ void __launch_bounds__(kThreads)
    split_order_kernel(const int32_t* order, const int64_t* from, const int64_t* to, int64_t experts,
                       int32_t* pass_order, int64_t slots) {
  await_previous();
  const int64_t slot = thread_index();
  if (slot >= slots) return;
  int32_t pair = -1;
  if (slot < to[experts]) {
    int64_t low = 0, high = experts;  // the last expert that begins at or before the slot
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      if (to[middle] <= slot)
        low = middle;
      else
        high = middle;
    }
    pair = order[from[low] + slot - to[low]];
  }
  pass_order[slot] = pair;
}

// Blocks in the order of the result: where each begins in the result (to) and in x (from).
__global__ void __launch_bounds__(kThreads)
    regroup_table_kernel(const int32_t* received, int64_t sources, int64_t experts, bool inverse, int64_t* to,
                         int64_t* from) {
  await_previous();
  __shared__ int64_t totals[kThreads / 32];
  const int64_t blocks = sources * experts;
  // Block number -> (source, expert), in the order by sources and in that by experts.
  const auto by_source = [&](int64_t i) { return i; };
  const auto by_expert = [&](int64_t i) { return i % sources * experts + i / sources; };
  const auto expert_index = [&](int64_t i) { return i % experts * sources + i / experts; };
  const auto source_index = [&](int64_t i) { return i % sources * experts + i / sources; };
  scan(
      blocks,
      [&](int64_t i) { return static_cast<int64_t>(received[inverse ? by_source(i) : by_expert(i)]); },
      [&](int64_t i, int64_t at) { to[i] = at; }, totals);
  // x is in the other order; its block i is the result's block with the given index.
  scan(
      blocks,
      [&](int64_t i) { return static_cast<int64_t>(received[inverse ? by_expert(i) : by_source(i)]); },
      [&](int64_t i, int64_t at) {
        if (i < blocks) from[inverse ? source_index(i) : expert_index(i)] = at;
      },
      totals);
}

// A block moves kRegroupRows rows of words, all of them in flight at once.
inline constexpr int kRegroupRows = 4;
template <class W>
__global__ void __launch_bounds__(kThreads)
    regroup_kernel(const W* x, const int64_t* to, const int64_t* from, int64_t blocks, W* y, int64_t rows,
                   int64_t words) {
  await_previous();
  __shared__ int64_t shared[kRegroupRows];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kRegroupRows, used = to[blocks];
  if (first >= used) return;
  if (threadIdx.x < kRegroupRows) {
    const int64_t row = first + threadIdx.x;
    int64_t low = 0, high = blocks;  // the last non-empty block that begins at or before the row
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      if (to[middle] <= row)
        low = middle;
      else
        high = middle;
    }
    const int64_t source = from[low] + row - to[low];
    shared[threadIdx.x] = row < used && row < rows && source < rows ? source : -1;
  }
  __syncthreads();
  int64_t sources[kRegroupRows];
#pragma unroll
  for (int r = 0; r < kRegroupRows; ++r) sources[r] = shared[r];
  for (int64_t i = threadIdx.x; i < words; i += blockDim.x) {
    W row[kRegroupRows];
#pragma unroll
    for (int r = 0; r < kRegroupRows; ++r)
      if (sources[r] >= 0) row[r] = x[sources[r] * words + i];
#pragma unroll
    for (int r = 0; r < kRegroupRows; ++r)
      if (sources[r] >= 0) y[(first + r) * words + i] = row[r];
  }
}

template <class T>
struct SumCopies {
  const T* x;
  int64_t copies, n;
  T* y;
  template <int V>
  __device__ Vals<Stat<T>, V> load(int64_t i) const {
    Vals<Stat<T>, V> sum = cuda::load<V>(x + i);
    for (int64_t c = 1; c < copies; ++c) {
      const auto v = cuda::load<V>(x + c * n + i);
#pragma unroll
      for (int k = 0; k < V; ++k) sum.v[k] += v.v[k];
    }
    return sum;
  }
  template <int V>
  __device__ void store(int64_t i, const Vals<Stat<T>, V>& sum) const {
    cuda::store<V>(y + i, sum);
  }
};

__global__ void __launch_bounds__(kThreads)
    count_rows_kernel(const int32_t* counts, int64_t n, int64_t most, int64_t* rows) {
  await_previous();
  __shared__ int64_t shared[32];
  int64_t sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += kThreads) sum += counts[i];
  sum = block_fold(sum, shared, Plus{});
  if (threadIdx.x == 0) *rows = sum < most ? sum : most;
}

// Calls fn with both buffers as words that divide their rows, and the words per row.
template <class F>
void with_words(const std::byte* x, std::byte* y, int64_t row_bytes, const F& fn) {
  const auto as = [&]<class W>(W) {
    fn(reinterpret_cast<const W*>(x), reinterpret_cast<W*>(y), row_bytes / static_cast<int64_t>(sizeof(W)));
  };
  const auto both = reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y);
  if (row_bytes % 16 == 0 && all_aligned16(x, y)) return as(uint4{});
  if (row_bytes % 4 == 0 && both % 4 == 0) return as(uint32_t{});
  if (row_bytes % 2 != 0) fail("rows of " + std::to_string(row_bytes) + " bytes, expected an even number");
  as(uint16_t{});
}

// slot_of[pair], negative for pairs without a slot.
void find_slots(const int32_t* order, int64_t slots, int64_t pairs, int32_t* slot_of, Stream stream,
                const char* what) {
  if (pairs > 0) no_slots_kernel<<<blocks_for(pairs), kThreads, 0, stream>>>(slot_of, pairs);
  if (slots > 0) slots_kernel<<<blocks_for(slots), kThreads, 0, stream>>>(order, slots, slot_of);
  check_launch(what);
}

}  // namespace

void split_rows(const PassShape& shape, const int32_t* order, const int32_t* counts, const int32_t* pass,
                int32_t* pass_order, int32_t* send, int32_t* received, int32_t* passes, void* workspace,
                Stream stream) {
  auto* const before = static_cast<int64_t*>(workspace);
  auto* const from = before + shape.members * shape.all_experts + 1;
  auto* const to = from + shape.all_experts + 1;
  split_counts_kernel<<<1, kThreads, 0, stream>>>(shape, counts, pass, send, received, passes, before, from,
                                                  to);
  if (shape.slots > 0)
    split_order_kernel<<<blocks_for(shape.slots), kThreads, 0, stream>>>(order, from, to, shape.all_experts,
                                                                         pass_order, shape.slots);
  check_launch("split_rows");
}

void pack_rows(const std::byte* x, const int32_t* order, int64_t tokens, int64_t choices, bool zero_unused,
               std::byte* y, int64_t slots, int64_t row_bytes, void* workspace, Stream stream) {
  if (slots <= 0 || row_bytes <= 0) return;
  auto* const slot_of = static_cast<int32_t*>(workspace);
  find_slots(order, slots, tokens * choices, slot_of, stream, "pack_rows");
  with_words(x, y, row_bytes, [&]<class W>(const W* from, W* to, int64_t words) {
    each_row<1, 2>(SpreadRows<W>{from, {slot_of, choices, tokens * choices}, to, words}, tokens, words, false,
                   stream, "pack_rows");
    if (zero_unused) {
      clear_unused_kernel<<<blocks_for(slots * 32), kThreads, 0, stream>>>(order, slots, to, words);
      check_launch("pack_rows");
    }
  });
}

template <class T>
void unpack_rows(const T* y, const int32_t* order, int64_t slots, int64_t choices, const T* addend, T* x,
                 int64_t tokens, int64_t n, void* workspace, Stream stream) {
  auto* const slot_of = static_cast<int32_t*>(workspace);
  find_slots(order, slots, tokens * choices, slot_of, stream, "unpack_rows");
  // R rows at a time, U times.
  const auto sum = [&]<int R, int U, bool kAdds>() {
    each_row<kWide<T>, U>(SumSlots<T, R, kAdds>{y, {slot_of, choices, tokens * choices}, addend, x, n},
                          divide_up(tokens, R), n, n % kWide<T> == 0 && all_aligned16(x, y, addend), stream,
                          "unpack_rows");
  };
  // The addend's loads are in flight too, so fewer rows saturate memory.
  if (choices == 1)
    addend != nullptr ? sum.template operator()<1, 2, true>() : sum.template operator()<kSlots, 1, false>();
  else if (choices == 2)
    addend != nullptr ? sum.template operator()<kSlots / 2, 1, true>()
                      : sum.template operator()<kSlots / 2, 2, false>();
  else
    addend != nullptr ? sum.template operator()<1, 1, true>() : sum.template operator()<1, 1, false>();
}

template <class S>
void pack_weights(const S* weights, const int32_t* order, bool zero_unused, S* packed, int64_t slots,
                  Stream stream) {
  if (slots <= 0) return;
  pack_weights_kernel<<<blocks_for(slots), kThreads, 0, stream>>>(weights, order, zero_unused, packed, slots);
  check_launch("pack_weights");
}

template <class S>
void unpack_weights(const S* packed, const int32_t* order, int64_t slots, const S* addend, S* weights,
                    int64_t pairs, Stream stream) {
  const size_t bytes = static_cast<size_t>(pairs) * sizeof(S);
  if (pairs > 0 && addend == nullptr) check(cudaMemsetAsync(weights, 0, bytes, stream), "unpack_weights");
  if (pairs > 0 && addend != nullptr && addend != weights)
    check(cudaMemcpyAsync(weights, addend, bytes, cudaMemcpyDeviceToDevice, stream), "unpack_weights");
  if (slots > 0)
    unpack_weights_kernel<<<blocks_for(slots), kThreads, 0, stream>>>(packed, order, slots, addend != nullptr,
                                                                      weights);
  check_launch("unpack_weights");
}

void regroup(const std::byte* x, const int32_t* received, int64_t sources, int64_t experts, bool inverse,
             std::byte* y, int64_t rows, int64_t row_bytes, void* workspace, Stream stream) {
  if (rows <= 0 || row_bytes <= 0) return;
  const int64_t blocks = sources * experts;
  auto* const to = static_cast<int64_t*>(workspace);
  auto* const from = to + blocks + 1;
  regroup_table_kernel<<<1, kThreads, 0, stream>>>(received, sources, experts, inverse, to, from);
  check_launch("regroup");
  with_words(x, y, row_bytes, [&]<class W>(const W* begin, W* result, int64_t words) {
    int64_t threads = 32;
    while (threads < kThreads && threads < words) threads *= 2;
    regroup_kernel<<<static_cast<unsigned>(divide_up(rows, kRegroupRows)), static_cast<unsigned>(threads), 0,
                     stream>>>(begin, to, from, blocks, result, rows, words);
  });
  check_launch("regroup");
}

template <class T>
void sum_copies(const T* x, int64_t copies, T* y, int64_t n, Stream stream) {
  each<kWide<T>, 2>(SumCopies<T>{x, copies, n, y}, n,
                    all_aligned16(x, y) && (copies == 1 || n % kWide<T> == 0), stream, "sum_copies");
}

void count_rows(const int32_t* counts, int64_t n, int64_t most, int64_t* rows, Stream stream) {
  count_rows_kernel<<<1, kThreads, 0, stream>>>(counts, n, most, rows);
  check_launch("count_rows");
}

#define INSTANTIATE(T)                              \
  template decltype(unpack_rows<T>) unpack_rows<T>; \
  template decltype(sum_copies<T>) sum_copies<T>;
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bf16)
INSTANTIATE(F16)
#undef INSTANTIATE
template decltype(pack_weights<double>) pack_weights<double>;
template decltype(pack_weights<float>) pack_weights<float>;
template decltype(unpack_weights<double>) unpack_weights<double>;
template decltype(unpack_weights<float>) unpack_weights<float>;

}  // namespace quintet::kernels::cuda
