// How the threads of a norm's backward kernel share rows, and how rows reach them; and helpers of forward and
// backward. Blocks are persistent: while a block works on some rows, the next ones are prefetched into shared
// memory, where every thread keeps 16-byte vectors of each operand that it alone writes and reads. That keeps
// enough bytes in flight whatever the registers hold.
#pragma once

#include <bit>

#include "kernels/cuda/support/async_copy.cuh"
#include "kernels/cuda/support/launch.cuh"
#include "kernels/cuda/support/vector16.cuh"

namespace quintet::kernels::cuda {

// A block handles rows in groups of kGroup threads, each with kPacks vectors of its row. It is large, so that
// there are few partial sums of weights: one to three blocks run on each multiprocessor.
template <int kGroupOf, int kPacksOf>
struct NormShape {
  static constexpr int kGroup = kGroupOf, kPacks = kPacksOf;
  // Rows of a block at a time: a power of two, since five of 96 threads were up to 13 % slower than four.
  static constexpr int kRows = std::bit_floor(512u / kGroup), kThreads = kRows * kGroup;
  static constexpr int64_t kMaxPacks = kGroup * int64_t{kPacks};
  // Rows of a group in shared memory: as many as pay off (fewer operands, more rows) and fit.
  template <bool kDx>
  static constexpr int kStages = kDx ? (kPacks <= 2 ? 3 : 2) : (kPacks <= 3 ? 4 : 3);
  static constexpr int64_t bytes(int64_t packs, int rows) { return int64_t{rows} * kRows * packs * 16; }
};

template <class... Shapes>
struct NormShapes {};

// Row indices have 32 bits, including some past the last row.
inline constexpr int64_t kNormMaxRows = int64_t{1} << 30;

// Calls f(shape) with the shapes that fit a row, smallest first, until one returns true; false when none
// does.
template <class F, class... Shapes>
bool with_norm_shape(NormShapes<Shapes...>, int64_t packs, F&& f) {
  return ((packs <= Shapes::kMaxPacks && f(Shapes{})) || ...);
}

// The number of blocks that run at once; 0 where not even one fits. `most` is the largest `bytes` that the
// kernel is ever given.
template <class K>
int64_t resident_blocks(K* kernel, int threads, int64_t bytes, int64_t most) {
  constexpr int kStatic = 4096;  // no kernel declares more
  int device = 0, processors = 0, room = 0, each = 0;
  check(cudaGetDevice(&device), "norm");
  check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device), "norm");
  check(cudaDeviceGetAttribute(&room, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "norm");
  room -= kStatic;
  if (bytes > room) return 0;
  // The same for all sizes: other threads may be launching the same kernel.
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             most < room ? static_cast<int>(most) : room),
        "norm");
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                             cudaSharedmemCarveoutMaxShared),
        "norm");
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, threads, static_cast<size_t>(bytes)),
        "norm");
  return int64_t{processors} * each;
}

// Sums over the threads of a row, the same bits always. A group's sums alternate between two slots, so that
// one barrier per row is enough: a thread that rewrites the first slot has passed the barrier of the second,
// by which all have read the first.
template <class Shape, int N, class S>
class RowSums {
 public:
  // N sums at once; `turn` alternates between 0 and 1. All lanes of a warp take part.
  __device__ __forceinline__ void sum(S (&v)[N], int turn) {
    constexpr int kLanes = Shape::kGroup < 32 ? Shape::kGroup : 32;
#pragma unroll
    for (int d = kLanes / 2; d > 0; d /= 2)
#pragma unroll
      for (int i = 0; i < N; ++i) v[i] += __shfl_xor_sync(0xffffffffu, v[i], d);
    if constexpr (kWarps > 1) {
      const int member = static_cast<int>(threadIdx.x) / Shape::kGroup;
      if (threadIdx.x % 32 == 0)
#pragma unroll
        for (int i = 0; i < N; ++i) part_[turn][member][i][threadIdx.x / 32 % kWarps] = v[i];
      // Only the threads of this group; barrier 0 is __syncthreads.
      asm volatile("bar.sync %0, %1;" ::"r"(member + 1), "n"(Shape::kGroup) : "memory");
#pragma unroll
      for (int i = 0; i < N; ++i) {
        S all = part_[turn][member][i][0];
#pragma unroll
        for (int w = 1; w < kWarps; ++w) all += part_[turn][member][i][w];
        v[i] = all;
      }
    }
  }

 private:
  static constexpr int kWarps = Shape::kGroup > 32 ? Shape::kGroup / 32 : 1;
  alignas(16) S part_[2][kWarps > 1 ? Shape::kRows : 1][N][kWarps];
};

// The norm of an element before its weight, and with it: shared, so that forward and backward agree exactly.
template <bool kCentred, class S>
__device__ __forceinline__ S normed(S x, S mean, S rstd) {
  return kCentred ? (x - mean) * rstd : x * rstd;
}
template <bool kCentred, class S>
__device__ __forceinline__ S weighted(S h, S w, S b) {
  return kCentred ? fma(h, w, b) : h * w;
}

// For rows that no shape fits, unaligned rows, and doubles: one block per row, one element at a time, the row
// reread for each use.
inline constexpr int kNormAnyThreads = 256;

}  // namespace quintet::kernels::cuda
