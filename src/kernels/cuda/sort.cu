#include "kernels/cuda/sort.cuh"

namespace quintet::kernels::cuda {
namespace {

inline constexpr int kThreads = kSortBlock, kWarps = kThreads / 32;  // a block sorts one pair per thread
inline constexpr int kDigits = kSortDigits, kDigitBits = 8;
static_assert(kDigits == 1 << kDigitBits);

__device__ __forceinline__ uint32_t digit_of(uint32_t key, int shift) { return key >> shift & (kDigits - 1); }

// counts[digit, block]
__global__ void __launch_bounds__(kThreads)
    count_kernel(const SortPair* pairs, int64_t n, int shift, uint32_t* counts) {
  await_previous();
  __shared__ uint32_t shared[kDigits];
  if (threadIdx.x < kDigits) shared[threadIdx.x] = 0;
  __syncthreads();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n) atomicAdd(&shared[digit_of(pairs[i].key, shift)], 1u);
  __syncthreads();
  if (threadIdx.x < kDigits) counts[threadIdx.x * gridDim.x + blockIdx.x] = shared[threadIdx.x];
}

// Every count becomes the sum of those before it. One block; each thread has a run of neighbours.
__global__ void __launch_bounds__(kThreads) scan_kernel(uint32_t* counts, int64_t n) {
  await_previous();
  __shared__ uint32_t totals[kWarps];
  const int64_t each = (n + kThreads - 1) / kThreads, begin = threadIdx.x * each;
  const int64_t end = begin + each < n ? begin + each : n;
  uint32_t sum = 0;
  for (int64_t i = begin; i < end; ++i) sum += counts[i];
  uint32_t before = sum;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const uint32_t left = __shfl_up_sync(0xffffffffu, before, d);
    if (threadIdx.x % 32 >= d) before += left;
  }
  if (threadIdx.x % 32 == 31) totals[threadIdx.x / 32] = before;
  __syncthreads();
  before -= sum;
  for (unsigned w = 0; w < threadIdx.x / 32; ++w) before += totals[w];
  for (int64_t i = begin; i < end; ++i) {
    const uint32_t count = counts[i];
    counts[i] = before;
    before += count;
  }
}

// A pair's place: all smaller digits, the same digit in earlier blocks (both in `offsets`), in earlier warps,
// in lower lanes.
__global__ void __launch_bounds__(kThreads)
    scatter_kernel(const SortPair* from, SortPair* to, int64_t n, int shift, const uint32_t* offsets) {
  await_previous();
  __shared__ uint16_t seen[kWarps][kDigits];  // of a digit in a warp, then in the warps before it
  __shared__ uint32_t starts[kDigits];
  for (int i = static_cast<int>(threadIdx.x); i < kWarps * kDigits; i += kThreads) (&seen[0][0])[i] = 0;
  __syncthreads();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const unsigned active = __ballot_sync(0xffffffffu, i < n);
  SortPair pair{};
  uint32_t digit = 0, lower = 0;
  if (i < n) {
    pair = from[i];
    digit = digit_of(pair.key, shift);
    const unsigned same = __match_any_sync(active, digit);
    lower = static_cast<uint32_t>(__popc(same & ((1u << lane) - 1)));
    if (lower == 0) seen[warp][digit] = static_cast<uint16_t>(__popc(same));
  }
  __syncthreads();
  if (threadIdx.x < kDigits) {
    starts[threadIdx.x] = offsets[threadIdx.x * gridDim.x + blockIdx.x];
    uint16_t before = 0;
    for (int w = 0; w < kWarps; ++w) {
      const uint16_t count = seen[w][threadIdx.x];
      seen[w][threadIdx.x] = before;
      before = static_cast<uint16_t>(before + count);
    }
  }
  __syncthreads();
  if (i < n) to[starts[digit] + seen[warp][digit] + lower] = pair;
}

}  // namespace

SortPair* sort_pairs(SortPair* from, SortPair* other, int64_t n, int bits, void* workspace, Stream stream) {
  if (n <= 0) return from;
  auto* counts = static_cast<uint32_t*>(workspace);
  const int64_t blocks = divide_up(n, kThreads);
  const auto grid = static_cast<unsigned>(blocks);
  for (int shift = 0; shift < bits; shift += kDigitBits) {
    count_kernel<<<grid, kThreads, 0, stream>>>(from, n, shift, counts);
    scan_kernel<<<1, kThreads, 0, stream>>>(counts, blocks * kDigits);
    scatter_kernel<<<grid, kThreads, 0, stream>>>(from, other, n, shift, counts);
    check_launch("sort_pairs");
    SortPair* const sorted = other;
    other = from;
    from = sorted;
  }
  return from;
}

}  // namespace quintet::kernels::cuda
