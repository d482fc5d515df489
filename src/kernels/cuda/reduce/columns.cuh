// Distributes items to columns, those of a column in index order: counted by chunks in one launch, placed in
// a second, without a sort. A body defines the items and their destination:
//
//   using Item;                                  // with a member `column`, negative for items without one
//   int columns() const;                         // at most kDealColumns
//   Item read(uint32_t i) const;                 // item i
//   void put(const Item&, uint32_t start, uint32_t rank) const;  // rank items of its column come before it,
//                                                // start items are in lower columns
//   void skip(const Item&) const;                // has no column
//   void finish(const uint32_t* starts, const uint32_t* totals) const;  // all threads of all blocks, once
//
// blockIdx.x is the chunk. blockIdx.y and z are the body's: every (y, z) distributes `items` items.
#pragma once

#include "kernels/cuda/support/launch.cuh"

namespace quintet::kernels::cuda {

namespace dealing {

inline constexpr unsigned kThreads = kDealThreads, kWarps = kThreads / 32, kAllLanes = 0xffffffffu;
static_assert(kWarps == 32, "a warp has a lane for every warp");

struct Cut {
  uint32_t items, length;  // length of a chunk, a multiple of kThreads
};

__device__ __forceinline__ unsigned lane_of() { return threadIdx.x % 32; }
__device__ __forceinline__ unsigned warp_of() { return threadIdx.x / 32; }
__device__ __forceinline__ unsigned lower_lanes() { return (1u << lane_of()) - 1; }
__device__ __forceinline__ uint32_t count_of(unsigned mask) { return static_cast<uint32_t>(__popc(mask)); }

// counts[z, y, chunk, column]
__device__ __forceinline__ int64_t table_of(unsigned columns) {
  return (int64_t{blockIdx.z} * gridDim.y + blockIdx.y) * gridDim.x * columns;
}

template <class B>
__global__ void __launch_bounds__(kThreads)
    count_kernel(const __grid_constant__ B body, Cut cut, uint32_t* counts) {
  await_previous();
  __shared__ uint32_t found[kDealColumns];
  const auto columns = static_cast<unsigned>(body.columns());
  const uint32_t begin = blockIdx.x * cut.length, end = min(begin + cut.length, cut.items);
  if (threadIdx.x < columns) found[threadIdx.x] = 0;
  __syncthreads();
#pragma unroll 1
  for (uint32_t i = begin + threadIdx.x; i < end; i += kThreads) {
    const int column = body.read(i).column;
    if (column >= 0) atomicAdd(found + column, 1u);
  }
  __syncthreads();
  if (threadIdx.x < columns)
    counts[table_of(columns) + blockIdx.x * columns + threadIdx.x] = found[threadIdx.x];
}

// Adds up a table's counts: all chunks' into `totals`, those of chunks before this one into `before`. Both
// are zero initially.
__device__ __forceinline__ void add_counts(const uint32_t* table, unsigned columns, uint32_t* totals,
                                           uint32_t* before) {
  // Counts in flight: as many as a thread has with 129 columns and 128 chunks.
  constexpr unsigned kAhead = 20;
  const unsigned column = threadIdx.x % columns, first = threadIdx.x / columns, step = kThreads / columns;
  if (first >= step) return;
  uint32_t total = 0, lower = 0;
#pragma unroll 1
  for (unsigned c = first; c < gridDim.x; c += kAhead * step) {
    uint32_t count[kAhead];
#pragma unroll
    for (unsigned u = 0; u < kAhead; ++u) {
      const unsigned chunk = c + u * step;
      count[u] = chunk < gridDim.x ? table[chunk * columns + column] : 0;
    }
#pragma unroll
    for (unsigned u = 0; u < kAhead; ++u) {
      total += count[u];
      lower += c + u * step < blockIdx.x ? count[u] : 0;
    }
  }
  atomicAdd(totals + column, total);
  atomicAdd(before + column, lower);
}

// Exclusive prefix sum of v over the threads. `sums` has a number for every warp. Called by all threads.
__device__ __forceinline__ uint32_t sum_of_lower(uint32_t v, uint32_t* sums) {
  uint32_t upto = v;
#pragma unroll
  for (unsigned d = 1; d < 32; d *= 2) {
    const uint32_t left = __shfl_up_sync(kAllLanes, upto, d);
    if (lane_of() >= d) upto += left;
  }
  if (lane_of() == 31) sums[warp_of()] = upto;
  __syncthreads();
  return upto - v + __reduce_add_sync(kAllLanes, lane_of() < warp_of() ? sums[lane_of()] : 0);
}

template <class B>
__global__ void __launch_bounds__(kThreads)
    place_kernel(const __grid_constant__ B body, Cut cut, const uint32_t* counts) {
  await_previous();
  __shared__ uint32_t totals[kDealColumns], starts[kDealColumns], next[kDealColumns], sums[kWarps];
  __shared__ uint16_t seen[kWarps * kDealColumns];  // per column in a warp, then in the warps before it
  const auto columns = static_cast<unsigned>(body.columns());
  const uint32_t begin = blockIdx.x * cut.length, end = min(begin + cut.length, cut.items);
  uint32_t i = begin + threadIdx.x;
  typename B::Item item{};
  if (i < end) item = body.read(i);
  if (threadIdx.x < columns) totals[threadIdx.x] = next[threadIdx.x] = 0;
  __syncthreads();
  add_counts(counts + table_of(columns), columns, totals, next);
  __syncthreads();
  const uint32_t start = sum_of_lower(threadIdx.x < columns ? totals[threadIdx.x] : 0, sums);
  if (threadIdx.x < columns) starts[threadIdx.x] = start;
  uint16_t* const own = seen + warp_of() * columns;
#pragma unroll 1
  for (uint32_t from = begin; from < end; from += kThreads) {
    for (unsigned c = lane_of(); c < columns; c += 32) own[c] = 0;
    __syncwarp();
    const int column = i < end ? item.column : -1;
    const unsigned same = __match_any_sync(kAllLanes, column);
    const uint32_t lower = count_of(same & lower_lanes());
    if (column >= 0 && lower == 0) own[column] = static_cast<uint16_t>(count_of(same));
    __syncthreads();
    uint32_t before = 0;
    if (threadIdx.x < columns) {
#pragma unroll
      for (unsigned w = 0; w < kWarps; ++w) {
        const uint32_t count = seen[w * columns + threadIdx.x];
        seen[w * columns + threadIdx.x] = static_cast<uint16_t>(before);
        before += count;
      }
    }
    __syncthreads();
    if (column >= 0)
      body.put(item, starts[column], next[column] + own[column] + lower);
    else if (i < end)
      body.skip(item);
    if (from + kThreads >= end) break;
    i += kThreads;
    if (i < end) item = body.read(i);
    __syncthreads();
    if (threadIdx.x < columns) next[threadIdx.x] += before;
  }
  __syncthreads();  // where a chunk has no items, for the starts
  body.finish(starts, totals);
}

}  // namespace dealing

// Distributes `items` items for each of y x z; `counts` has deal_bytes(items, columns) for each.
template <class B>
void deal(const B& body, int64_t items, int64_t y, int64_t z, uint32_t* counts, Stream stream,
          const char* what) {
  const dealing::Cut cut{static_cast<uint32_t>(items), static_cast<uint32_t>(deal_chunk(items))};
  const dim3 grid(static_cast<unsigned>(deal_chunks(items)), static_cast<unsigned>(y),
                  static_cast<unsigned>(z));
  dealing::count_kernel<B><<<grid, dealing::kThreads, 0, stream>>>(body, cut, counts);
  check_launch(what);
  dealing::place_kernel<B><<<grid, dealing::kThreads, 0, stream>>>(body, cut, counts);
  check_launch(what);
}

}  // namespace quintet::kernels::cuda
