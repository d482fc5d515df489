// Hopper's asynchronous MMA (wgmma) of 64 x 256 x 16 elements by four warps, operands in shared memory, and
// the bulk tensor copies, with a swizzle of 128 bytes, that load them.
#pragma once

#include <cuda.h>

#include "kernels/cuda/support/barrier.cuh"

namespace quintet::kernels::cuda {

// Only code for sm_90a has these instructions.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// A box of a matrix, or of a stack of matrices, from global memory; coordinates count elements, the
// contiguous dim first. Elements outside are read as zeros.
__device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap* map, int inner, int row,
                                         const uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
      "[%4];" ::"r"(to),
      "l"(map), "r"(inner), "r"(row), "r"(shared_address(barrier))
      : "memory");
}
__device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap* map, int inner, int row, int matrix,
                                         const uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], "
      "[%5];" ::"r"(to),
      "l"(map), "r"(inner), "r"(row), "r"(matrix), "r"(shared_address(barrier))
      : "memory");
}

// Descriptor of an operand stored in shared memory as boxes of swizzled rows of 128 bytes, at multiples of
// 1024 bytes. Rows are of m or n with k contiguous (kMajorK), eight rows every 1024 bytes; or of k with 64
// elements of m or n contiguous, boxes of 64 rows one after the other.
template <bool kMajorK>
__device__ __forceinline__ uint64_t describe(uint32_t address) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62, kEightRows = uint64_t{1024 >> 4} << 32,
                     kNextBox = uint64_t{8192 >> 4} << 16;
  return kSwizzle128 | kEightRows | (kMajorK ? uint64_t{1} << 16 : kNextBox) | ((address & 0x3ffff) >> 4);
}
// From 16 elements of k to the next, in descriptor units.
template <bool kMajorK>
inline constexpr uint64_t kNextK16 = kMajorK ? 32 >> 4 : 2048 >> 4;

__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void end_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until all groups except the last kLeft are done.
template <int kLeft>
__device__ __forceinline__ void await_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}

#define QUINTET_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define QUINTET_16(d, i) QUINTET_4(d, i), QUINTET_4(d, i + 4), QUINTET_4(d, i + 8), QUINTET_4(d, i + 12)
#define QUINTET_64(d, i) QUINTET_16(d, i), QUINTET_16(d, i + 16), QUINTET_16(d, i + 32), QUINTET_16(d, i + 48)
#define QUINTET_PRODUCT(TYPES)                                                                               \
  asm volatile(                                                                                              \
      "{\n\t.reg .pred add;\n\tsetp.ne.b32 add, %130, 0;\n\t"                                                \
      "wgmma.mma_async.sync.aligned.m64n256k16.f32." TYPES                                                   \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "    \
      "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, " \
      "%41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, " \
      "%61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, " \
      "%81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, "      \
      "%100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, "     \
      "%116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, %128, %129, add, 1, 1, "     \
      "%131, %132;\n\t}"                                                                                     \
      : QUINTET_64(d, 0), QUINTET_64(d, 64)                                                                  \
      : "l"(a), "l"(b), "r"(1), "n"(kMajorKOfA ? 0 : 1), "n"(kMajorKOfB ? 0 : 1))

// d += a b. Thread t of the 128 has rows r = 16 * (t / 32) + t % 32 / 4 and r + 8; d[4 * j] on are
// columns 8 * j + 2 * (t % 4) and the next of the first row, then of the second.
template <class T, bool kMajorKOfA, bool kMajorKOfB>
__device__ __forceinline__ void add_product(float (&d)[128], uint64_t a, uint64_t b) {
  if constexpr (std::is_same_v<T, Bf16>)
    QUINTET_PRODUCT("bf16.bf16");
  else
    QUINTET_PRODUCT("f16.f16");
}
#undef QUINTET_PRODUCT
#undef QUINTET_64
#undef QUINTET_16
#undef QUINTET_4

#endif

}  // namespace quintet::kernels::cuda
