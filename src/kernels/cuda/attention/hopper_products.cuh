// Hopper's asynchronous MMA (wgmma) as attention uses it: 64 rows times 64 to 256 columns, the left operand
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

// Operands of an MMA of N columns: N / 2 accumulators, numbered from 0, then the others.
#define QUINTET_4(c, d, i) c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3])
#define QUINTET_8(c, d, i) QUINTET_4(c, d, i), QUINTET_4(c, d, i + 4)
#define QUINTET_32(c, d, i) \
  QUINTET_8(c, d, i), QUINTET_8(c, d, i + 8), QUINTET_8(c, d, i + 16), QUINTET_8(c, d, i + 24)
#define QUINTET_40(c, d, i) QUINTET_32(c, d, i), QUINTET_8(c, d, i + 32)
#define QUINTET_48(c, d, i) QUINTET_40(c, d, i), QUINTET_8(c, d, i + 40)
#define QUINTET_64(c, d, i) QUINTET_32(c, d, i), QUINTET_32(c, d, i + 32)
#define QUINTET_96(c, d, i) QUINTET_64(c, d, i), QUINTET_32(c, d, i + 64)
#define QUINTET_128(c, d, i) QUINTET_64(c, d, i), QUINTET_64(c, d, i + 64)
#define QUINTET_NUMBERS_32                                                           \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, " \
  "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define QUINTET_NUMBERS_40 \
  QUINTET_NUMBERS_32       \
  ", "                     \
  "%32, %33, %34, %35, %36, %37, %38, %39"
#define QUINTET_NUMBERS_48 \
  QUINTET_NUMBERS_40       \
  ", "                     \
  "%40, %41, %42, %43, %44, %45, %46, %47"
#define QUINTET_NUMBERS_64 \
  QUINTET_NUMBERS_48       \
  ", "                     \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define QUINTET_NUMBERS_96                                                           \
  QUINTET_NUMBERS_64                                                                 \
  ", "                                                                               \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define QUINTET_NUMBERS_128                                                              \
  QUINTET_NUMBERS_96                                                                     \
  ", "                                                                                   \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, "     \
  "%110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, " \
  "%124, %125, %126, %127"
#define QUINTET_SHARED(COUNT, N, A, B, ADD, RIGHT, LEFT, TYPES, C)                                         \
  asm volatile("{\n\t.reg .pred add;\n\tsetp.ne.b32 add, %" ADD                                            \
               ", 0;\n\twgmma.mma_async.sync.aligned.m64n" N "k16.f32." TYPES " {" QUINTET_NUMBERS_##COUNT \
               "}, %" A ", %" B ", add, 1, 1, %" LEFT ", %" RIGHT ";\n\t}"                                 \
               : QUINTET_##COUNT(C, d, 0)                                                                  \
               : "l"(a), "l"(b), "r"(add), "n"(kTransposed ? 1 : 0), "n"(kTransposedLeft ? 1 : 0))
#define QUINTET_REGISTERS(COUNT, N, A0, A1, A2, A3, B, RIGHT, TYPES)                                        \
  asm volatile("{\n\t.reg .pred add;\n\tsetp.ne.b32 add, 1, 0;\n\twgmma.mma_async.sync.aligned.m64n" N      \
               "k16.f32." TYPES " {" QUINTET_NUMBERS_##COUNT "}, {%" A0 ", %" A1 ", %" A2 ", %" A3 "}, %" B \
                                                             ", add, 1, 1, %" RIGHT ";\n\t}"                \
               : QUINTET_##COUNT("+f", d, 0)                                                                \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kTransposed ? 1 : 0))
#define QUINTET_SHARED_32(TYPES, C) QUINTET_SHARED(32, "64", "32", "33", "34", "35", "36", TYPES, C)
#define QUINTET_SHARED_40(TYPES, C) QUINTET_SHARED(40, "80", "40", "41", "42", "43", "44", TYPES, C)
#define QUINTET_SHARED_48(TYPES, C) QUINTET_SHARED(48, "96", "48", "49", "50", "51", "52", TYPES, C)
#define QUINTET_SHARED_64(TYPES, C) QUINTET_SHARED(64, "128", "64", "65", "66", "67", "68", TYPES, C)
#define QUINTET_REGISTERS_32(TYPES) QUINTET_REGISTERS(32, "64", "32", "33", "34", "35", "36", "37", TYPES)
#define QUINTET_REGISTERS_48(TYPES) QUINTET_REGISTERS(48, "96", "48", "49", "50", "51", "52", "53", TYPES)
#define QUINTET_REGISTERS_64(TYPES) QUINTET_REGISTERS(64, "128", "64", "65", "66", "67", "68", "69", TYPES)
#define QUINTET_REGISTERS_96(TYPES) QUINTET_REGISTERS(96, "192", "96", "97", "98", "99", "100", "101", TYPES)
#define QUINTET_REGISTERS_128(TYPES) \
  QUINTET_REGISTERS(128, "256", "128", "129", "130", "131", "132", "133", TYPES)

// d += a b, or d = a b where `add` is 0. kFresh: always the latter, and the old values of d need no
// registers; a sum that is in flight from one round of a loop to the next must not be fresh. kTransposed: b
// has its rows as k; kTransposedLeft: so has a. Registers of d and of a are distributed as in multiply_add()
// (mma.cuh), 16 rows for each of the four warps.
#define QUINTET_BY_TYPE(MACRO, ...)                  \
  do {                                               \
    if constexpr (std::is_same_v<T, Bf16>)           \
      MACRO("bf16.bf16" __VA_OPT__(, ) __VA_ARGS__); \
    else                                             \
      MACRO("f16.f16" __VA_OPT__(, ) __VA_ARGS__);   \
  } while (false)
template <class T, bool kTransposed, bool kFresh, bool kTransposedLeft = false, int kRegisters>
__device__ __forceinline__ void product(float (&d)[kRegisters], uint64_t a, uint64_t b, int add = !kFresh) {
#define QUINTET_CASE(COUNT)                          \
  if constexpr (kRegisters == COUNT) {               \
    if constexpr (kFresh)                            \
      QUINTET_BY_TYPE(QUINTET_SHARED_##COUNT, "=f"); \
    else                                             \
      QUINTET_BY_TYPE(QUINTET_SHARED_##COUNT, "+f"); \
  }
  QUINTET_CASE(32)
  QUINTET_CASE(40)
  QUINTET_CASE(48)
  QUINTET_CASE(64)
  static_assert(kRegisters == 32 || kRegisters == 40 || kRegisters == 48 || kRegisters == 64);
#undef QUINTET_CASE
}
template <class T, bool kTransposed, int kRegisters>
__device__ __forceinline__ void add_product(float (&d)[kRegisters], const uint32_t (&a)[4], uint64_t b) {
#define QUINTET_CASE(COUNT) \
  if constexpr (kRegisters == COUNT) QUINTET_BY_TYPE(QUINTET_REGISTERS_##COUNT);
  QUINTET_CASE(32)
  QUINTET_CASE(48)
  QUINTET_CASE(64)
  QUINTET_CASE(96)
  QUINTET_CASE(128)
  static_assert(kRegisters == 32 || kRegisters == 48 || kRegisters == 64 || kRegisters == 96 ||
                kRegisters == 128);
#undef QUINTET_CASE
}
#undef QUINTET_BY_TYPE
#undef QUINTET_REGISTERS_32
#undef QUINTET_SHARED_32
#undef QUINTET_SHARED_40
#undef QUINTET_REGISTERS_48
#undef QUINTET_SHARED_48
#undef QUINTET_REGISTERS_64
#undef QUINTET_SHARED_64
#undef QUINTET_REGISTERS_96
#undef QUINTET_REGISTERS_128
#undef QUINTET_REGISTERS
#undef QUINTET_SHARED
#undef QUINTET_NUMBERS_32
#undef QUINTET_NUMBERS_40
#undef QUINTET_NUMBERS_48
#undef QUINTET_NUMBERS_64
#undef QUINTET_NUMBERS_96
#undef QUINTET_NUMBERS_128
#undef QUINTET_128
#undef QUINTET_96
#undef QUINTET_64
#undef QUINTET_48
#undef QUINTET_40
#undef QUINTET_32
#undef QUINTET_8
#undef QUINTET_4

// d = a b^T of two tiles with kWidth columns: a has 64 rows, at its address in panels of `a_panel` bytes; b
// has all rows of its tile.
template <class T, int kWidth, bool kFresh = false, int kRegisters>
__device__ __forceinline__ void rows_product(float (&d)[kRegisters], uint32_t a, uint32_t a_panel, uint32_t b,
                                             uint32_t b_panel) {
#pragma unroll
  for (int panel = 0; panel * 64 < kWidth; ++panel) {
    const uint64_t left = describe_rows(a + panel * a_panel), right = describe_rows(b + panel * b_panel);
#pragma unroll
    for (int k = 0; k < 4 && panel * 64 + k * 16 < kWidth; ++k)
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
