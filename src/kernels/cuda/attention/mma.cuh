// Synchronous tensor-core MMAs of 16 x 8 x 16 elements (Ampere on), and tiles in shared memory that are read
// without bank conflicts.
#pragma once

#include "kernels/cuda/support/async_copy.cuh"
#include "kernels/cuda/support/vector16.cuh"

namespace quintet::kernels::cuda {

// Four matrices of 8 x 8 elements, whose rows are addressed by lanes 0-7, 8-15, 16-23 and 24-31.
__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void load_transposed(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// d += a b. Lane l has rows l / 4 (d[0], d[1]) and l / 4 + 8 (d[2], d[3]), columns 2 * (l % 4) and the next.
template <class T>
__device__ __forceinline__ void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1) {
  if constexpr (std::is_same_v<T, Bf16>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// A tile of rows of kWidth 16-bit elements (a multiple of 32). Within a row the 16-byte vectors are permuted
// by the row, so that eight rows of one column of vectors are in eight different groups of banks.
template <int kWidth>
struct SharedTile {
  static_assert(kWidth % 32 == 0);
  static constexpr int kPitch = kWidth * 2;  // bytes
  static constexpr int kVectors = kWidth / 8;
  static constexpr int kMask = kWidth % 64 == 0 ? 7 : 3;

  static __device__ __forceinline__ uint32_t permutation(int row) {
    return static_cast<uint32_t>(kMask == 7 ? row & 7 : (row >> 1) & 3);
  }
  static __device__ __forceinline__ uint32_t offset(int row, int vector) {
    return static_cast<uint32_t>(row * kPitch) + ((static_cast<uint32_t>(vector) ^ permutation(row)) << 4);
  }
};

// A lane's address for load_matrices() of 16 x 16 elements of a tile. `row` is the lane's row of the sixteen,
// `vector` 0 or 1. at() then takes a first row (a multiple of 8) and a first column (a multiple of 16):
// constants, once loops are unrolled.
template <int kWidth>
struct LaneAddress {
  uint32_t row_base, swizzle;

  __device__ __forceinline__ LaneAddress(uint32_t tile, int row, int vector)
      : row_base(tile + static_cast<uint32_t>(row * SharedTile<kWidth>::kPitch)),
        swizzle((static_cast<uint32_t>(vector) ^ SharedTile<kWidth>::permutation(row)) << 4) {}
  __device__ __forceinline__ uint32_t at(int row, int column) const {
    constexpr int kMask = SharedTile<kWidth>::kMask;
    const int vector = column / 8;
    return row_base + static_cast<uint32_t>(row * SharedTile<kWidth>::kPitch + ((vector & ~kMask) << 4)) +
           (swizzle ^ static_cast<uint32_t>((vector & kMask) << 4));
  }
};
// As the left operand, rows of m with k contiguous: all four registers belong to one multiply_add.
template <int kWidth>
__device__ __forceinline__ LaneAddress<kWidth> left_operand(uint32_t tile, int first_row, int lane) {
  return {tile, first_row + lane % 16, lane / 16};
}
// As the right operand, rows of n with k contiguous: registers 0 and 1 hold columns 0-7 of n, 2 and 3 hold
// 8-15.
template <int kWidth>
__device__ __forceinline__ LaneAddress<kWidth> right_operand(uint32_t tile, int lane) {
  return {tile, lane % 8 + lane / 16 * 8, lane / 8 % 2};
}
// As the right operand, rows of k with n contiguous, for load_transposed(): registers as above.
template <int kWidth>
__device__ __forceinline__ LaneAddress<kWidth> right_transposed(uint32_t tile, int lane) {
  return {tile, lane % 16, lane / 16};
}

// Copies 16 bytes to shared memory, zeros where `valid` is false.
__device__ __forceinline__ void copy_or_zero(uint32_t shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(valid ? 16 : 0)
               : "memory");
}

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// About 2^-22 absolute: a soft cap amplifies the error, so the tanh instruction (2^-11) is too coarse.
__device__ __forceinline__ float tanh_fast(float x) {
  return 1.0f - __fdividef(2.0f, exp2_fast(x * 2.8853900817779268f) + 1.0f);
}

}  // namespace quintet::kernels::cuda
