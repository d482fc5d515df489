// Hopper's asynchronous MMA (wgmma) as attention uses it: 64 rows times 64 or 128 columns, the left operand
// in shared memory or in registers, and the tensor maps and copies that bring tiles into shared memory.
//
// A tile consists of panels of 64 columns, each row 128 bytes long and swizzled over eight rows (the layout
// that a bulk tensor copy of 64 columns writes). The same bytes can be read with the columns as k (K-major)
// and, as a right operand, with the rows as k (transposed).
#pragma once

#include "kernels/cuda/matmul/wgmma.cuh"
#include "kernels/cuda/support/vector16.cuh"

namespace quintet::kernels::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Rows of 64 columns from `address` on (a multiple of 1024) with the columns as k: the next 16 columns are
// 2 descriptor units later, the next panel panel_bytes / 16.
__device__ __forceinline__ uint64_t describe_rows(uint32_t address) {
  return uint64_t{1} << 62 | uint64_t{1024 >> 4} << 32 | uint64_t{1} << 16 | ((address & 0x3ffff) >> 4);
}
// With the rows as k and panels of 64 columns `panel_bytes` apart: the next 16 rows are 128 units later.
__device__ __forceinline__ uint64_t describe_columns(uint32_t address, uint32_t panel_bytes) {
  return uint64_t{1} << 62 | uint64_t{1024 >> 4} << 32 | static_cast<uint64_t>(panel_bytes >> 4) << 16 |
         ((address & 0x3ffff) >> 4);
}

#define QUINTET_4(c, d, i) c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3])
#define QUINTET_16(c, d, i) \
  QUINTET_4(c, d, i), QUINTET_4(c, d, i + 4), QUINTET_4(c, d, i + 8), QUINTET_4(c, d, i + 12)
#define QUINTET_32(c, d, i) QUINTET_16(c, d, i), QUINTET_16(c, d, i + 16)
#define QUINTET_64(c, d, i) QUINTET_32(c, d, i), QUINTET_32(c, d, i + 32)
#define QUINTET_SHARED_64(TYPES, C)                                                                \
  asm volatile(                                                                                    \
      "{\n\t.reg .pred add;\n\tsetp.ne.b32 add, %34, 0;\n\t"                                       \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPES                                          \
      " {"                                                                                         \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
      "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "                              \
      "%32, %33, add, 1, 1, %36, %35;\n\t}"                                                        \
      : QUINTET_32(C, d, 0)                                                                        \
      : "l"(a), "l"(b), "r"(add), "n"(kTransposed ? 1 : 0), "n"(kTransposedLeft ? 1 : 0))
#define QUINTET_REGISTERS_64(TYPES, C)                                                             \
  asm volatile(                                                                                    \
      "{\n\t.reg .pred add;\n\tsetp.ne.b32 add, %37, 0;\n\t"                                       \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPES                                          \
      " {"                                                                                         \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
      "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "                              \
      "{%32, %33, %34, %35}, %36, add, 1, 1, %38;\n\t}"                                            \
      : QUINTET_32(C, d, 0)                                                                        \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(kTransposed ? 1 : 0))
#define QUINTET_SHARED_128(TYPES, C)                                                               \
  asm volatile(                                                                                    \
      "{\n\t.reg .pred add;\n\tsetp.ne.b32 add, %66, 0;\n\t"                                       \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPES                                         \
      " {"                                                                                         \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
      "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, " \
      "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, " \
      "%56, %57, %58, %59, %60, %61, %62, %63}, "                                                  \
      "%64, %65, add, 1, 1, %68, %67;\n\t}"                                                        \
      : QUINTET_64(C, d, 0)                                                                        \
      : "l"(a), "l"(b), "r"(add), "n"(kTransposed ? 1 : 0), "n"(kTransposedLeft ? 1 : 0))
#define QUINTET_REGISTERS_128(TYPES, C)                                                            \
  asm volatile(                                                                                    \
      "{\n\t.reg .pred add;\n\tsetp.ne.b32 add, %69, 0;\n\t"                                       \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPES                                         \
      " {"                                                                                         \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
      "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, " \
      "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, " \
      "%56, %57, %58, %59, %60, %61, %62, %63}, "                                                  \
      "{%64, %65, %66, %67}, %68, add, 1, 1, %70;\n\t}"                                            \
      : QUINTET_64(C, d, 0)                                                                        \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(kTransposed ? 1 : 0))

// d += a b, or d = a b where `add` is 0. kFresh: always the latter, and the old values of d need no
// registers; a sum that is in flight from one round of a loop to the next must not be fresh. kTransposed: b
// has its rows as k; kTransposedLeft: so has a. Registers of d and of a are distributed as in multiply_add()
// (mma.cuh), 16 rows for each of the four warps.
#define QUINTET_BY_TYPE(MACRO, C)          \
  do {                                     \
    if constexpr (std::is_same_v<T, Bf16>) \
      MACRO("bf16.bf16", C);               \
    else                                   \
      MACRO("f16.f16", C);                 \
  } while (false)
template <class T, bool kTransposed, bool kFresh, bool kTransposedLeft = false, int kRegisters>
__device__ __forceinline__ void product(float (&d)[kRegisters], uint64_t a, uint64_t b, int add = !kFresh) {
  static_assert(kRegisters == 32 || kRegisters == 64);
  if constexpr (kRegisters == 32) {
    if constexpr (kFresh)
      QUINTET_BY_TYPE(QUINTET_SHARED_64, "=f");
    else
      QUINTET_BY_TYPE(QUINTET_SHARED_64, "+f");
  } else {
    if constexpr (kFresh)
      QUINTET_BY_TYPE(QUINTET_SHARED_128, "=f");
    else
      QUINTET_BY_TYPE(QUINTET_SHARED_128, "+f");
  }
}
template <class T, bool kTransposed, int kRegisters>
__device__ __forceinline__ void add_product(float (&d)[kRegisters], const uint32_t (&a)[4], uint64_t b) {
  constexpr int add = 1;
  static_assert(kRegisters == 32 || kRegisters == 64);
  if constexpr (kRegisters == 32)
    QUINTET_BY_TYPE(QUINTET_REGISTERS_64, "+f");
  else
    QUINTET_BY_TYPE(QUINTET_REGISTERS_128, "+f");
}
#undef QUINTET_BY_TYPE
#undef QUINTET_REGISTERS_128
#undef QUINTET_SHARED_128
#undef QUINTET_REGISTERS_64
#undef QUINTET_SHARED_64
#undef QUINTET_64
#undef QUINTET_32
#undef QUINTET_16
#undef QUINTET_4

// d = a b^T of two tiles with kWidth columns: a has 64 rows, at its address in panels of `a_panel` bytes; b
// has all rows of its tile.
template <class T, int kWidth, bool kFresh = false, int kRegisters>
__device__ __forceinline__ void rows_product(float (&d)[kRegisters], uint32_t a, uint32_t a_panel, uint32_t b,
                                             uint32_t b_panel) {
#pragma unroll
  for (int panel = 0; panel < kWidth / 64; ++panel) {
    const uint64_t left = describe_rows(a + panel * a_panel), right = describe_rows(b + panel * b_panel);
#pragma unroll
    for (int k = 0; k < 4; ++k)
      if (panel + k == 0)
        product<T, false, kFresh>(d, left, right, 0);
      else
        product<T, false, false>(d, left + 2 * k, right + 2 * k);
  }
}
// d += a b with a (64 x 16 * kSteps) in registers and b's rows as k.
template <class T, int kSteps, int kRegisters>
__device__ __forceinline__ void add_columns_product(float (&d)[kRegisters], const uint32_t (&a)[kSteps][4],
                                                    uint32_t b, uint32_t b_panel) {
  const uint64_t right = describe_columns(b, b_panel);
#pragma unroll
  for (int k = 0; k < kSteps; ++k) add_product<T, true>(d, a[k], right + 128 * k);
}

// d += a b with 64 rows of a at its address, kColumns columns as k in panels of `a_panel` bytes, and b's rows
// as k.
template <class T, int kColumns, int kRegisters>
__device__ __forceinline__ void add_rows_product(float (&d)[kRegisters], uint32_t a, uint32_t a_panel,
                                                 uint32_t b, uint32_t b_panel) {
  const uint64_t right = describe_columns(b, b_panel);
#pragma unroll
  for (int panel = 0; panel < kColumns / 64; ++panel) {
    const uint64_t left = describe_rows(a + panel * a_panel);
#pragma unroll
    for (int k = 0; k < 4; ++k) product<T, true, false>(d, left + 2 * k, right + 128 * (4 * panel + k));
  }
}
// d = a^T b of tiles with 16 * kSteps rows: 64 columns of a at its address, those of b at its own.
template <class T, int kSteps, int kRegisters>
__device__ __forceinline__ void columns_product(float (&d)[kRegisters], uint32_t a, uint32_t b,
                                                uint32_t b_panel) {
  const uint64_t left = describe_columns(a, 0), right = describe_columns(b, b_panel);
#pragma unroll
  for (int k = 0; k < kSteps; ++k)
    if (k == 0)
      product<T, true, true, true>(d, left, right);
    else
      product<T, true, false, true>(d, left + 128 * k, right + 128 * k);
}

// The same with a packed by pack_left().
template <class T, int kRegisters, int kPacked>
__device__ __forceinline__ void add_packed_product(float (&d)[kRegisters], const float (&a)[kPacked],
                                                   uint32_t b, uint32_t b_panel) {
  const uint64_t right = describe_columns(b, b_panel);
#pragma unroll
  for (int k = 0; k < kPacked / 8; ++k) {
    const uint32_t words[4] = {__float_as_uint(a[4 * k]), __float_as_uint(a[4 * k + 1]),
                               __float_as_uint(a[4 * k + 2]), __float_as_uint(a[4 * k + 3])};
    add_product<T, true>(d, words, right + 128 * k);
  }
}

// Accumulators as the left operand of the next MMA, rounded to T, in the lower half of their own registers.
template <class T, int kRegisters>
__device__ __forceinline__ void pack_left(float (&d)[kRegisters]) {
#pragma unroll
  for (int i = 0; i < kRegisters / 2; ++i) d[i] = __uint_as_float(word_of<T>(d[2 * i], d[2 * i + 1]));
}
// Accumulators as the left operand of the next MMA, rounded to T.
template <class T, int kRegisters>
__device__ __forceinline__ void left_of(const float (&d)[kRegisters], uint32_t (&a)[kRegisters / 8][4]) {
#pragma unroll
  for (int k = 0; k < kRegisters / 8; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) a[k][i] = word_of<T>(d[8 * k + 2 * i], d[8 * k + 2 * i + 1]);
}

// Keeps the compiler from moving reads and writes of accumulators across MMAs in flight.
template <int kRegisters>
__device__ __forceinline__ void pin(float (&d)[kRegisters]) {
#pragma unroll
  for (float& x : d) asm volatile("" : "+f"(x)::"memory");
}

#endif

}  // namespace quintet::kernels::cuda
