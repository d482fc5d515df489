// A tiled matmul inside a block, C (+)= op(A) op(B) as in GemmArgs, for problems whose sizes only the device
// knows, and for those whose bits must not depend on the number of rows: an element of C is summed over k in
// ascending order, whatever m and n are.
#pragma once

#include <mma.h>

#include "kernels/cuda/support/launch.cuh"
#include "kernels/cuda/support/vector16.cuh"

namespace quintet::kernels::cuda {

template <class A, class B, class C>
struct TileMatmul {
  const A* a;
  int64_t lda;
  const B* b;
  int64_t ldb;
  C* c;
  int64_t ldc;
  const C* addend;  // null: none; else rows of ldc
  bool accumulate;
  int64_t m, n, k;
};

template <class C, class S>
__device__ __forceinline__ void finish_element(const C* addend, C* c, bool accumulate, int64_t at, S sum) {
  if (addend != nullptr)
    sum += static_cast<S>(load<1>(addend + at).v[0]);
  else if (accumulate)
    sum += static_cast<S>(load<1>(c + at).v[0]);
  store<1>(c + at, Vals<Stat<C>, 1>{{static_cast<Stat<C>>(sum)}});
}

inline constexpr int kMatmulThreads = 256;

// Any types, summed in S: tiles of 64 x 64, every thread has 4 x 4 elements.
template <class S, bool kTransA, bool kTransB>
struct PlainTile {
  static constexpr int kM = 64, kN = 64, kK = 16;
  struct Memory {
    S a[kK][kM + 1], b[kK][kN + 1];
  };

  template <class A, class B, class C>
  static __device__ void run(const TileMatmul<A, B, C>& p, int64_t m0, int64_t n0, Memory& memory) {
    const int thread = static_cast<int>(threadIdx.x), tx = thread % 16, ty = thread / 16;
    S sum[4][4] = {};
    for (int64_t k0 = 0; k0 < p.k; k0 += kK) {
      __syncthreads();
      for (int at = thread; at < kM * kK; at += kMatmulThreads) {
        const int m = kTransA ? at % kM : at / kK, k = kTransA ? at / kM : at % kK;
        const bool in = m0 + m < p.m && k0 + k < p.k;
        const int64_t from = kTransA ? (k0 + k) * p.lda + m0 + m : (m0 + m) * p.lda + k0 + k;
        memory.a[k][m] = in ? static_cast<S>(load<1>(p.a + from).v[0]) : S(0);
      }
      for (int at = thread; at < kN * kK; at += kMatmulThreads) {
        const int n = kTransB ? at / kK : at % kN, k = kTransB ? at % kK : at / kN;
        const bool in = n0 + n < p.n && k0 + k < p.k;
        const int64_t from = kTransB ? (n0 + n) * p.ldb + k0 + k : (k0 + k) * p.ldb + n0 + n;
        memory.b[k][n] = in ? static_cast<S>(load<1>(p.b + from).v[0]) : S(0);
      }
      __syncthreads();
#pragma unroll
      for (int k = 0; k < kK; ++k) {
        S left[4], right[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) left[i] = memory.a[k][ty + 16 * i];
#pragma unroll
        for (int j = 0; j < 4; ++j) right[j] = memory.b[k][tx + 16 * j];
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int j = 0; j < 4; ++j) sum[i][j] += left[i] * right[j];
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int64_t m = m0 + ty + 16 * i, n = n0 + tx + 16 * j;
        if (m < p.m && n < p.n) finish_element(p.addend, p.c, p.accumulate, m * p.ldc + n, sum[i][j]);
      }
  }
};

// Operands of T, bf16 or f16, on the tensor cores, sums in f32: tiles of 128 x 128, every warp has 64 x 32
// elements. Rows of operands are read 16 bytes at a time: addresses and leading dims must allow it, and the
// sizes of contiguous dims must be multiples of 8.
template <class T, bool kTransA, bool kTransB>
struct TensorTile {
  using Element = std::conditional_t<std::is_same_v<T, F16>, __half, __nv_bfloat16>;
  static constexpr int kM = 128, kN = 128, kK = 32;
  // As the operand is stored in memory: [m][k] or [k][m]; rows are padded against bank conflicts.
  static constexpr int kLdA = kTransA ? kM + 8 : kK + 8, kLdB = kTransB ? kK + 8 : kN + 8;
  static constexpr int kSizeA = kTransA ? kK * kLdA : kM * kLdA, kSizeB = kTransB ? kN * kLdB : kK * kLdB;
  static constexpr int kPatch = 20;  // row length of a warp's patch of results
  struct alignas(128) Memory {
    union {
      struct {
        uint16_t a[2][kSizeA], b[2][kSizeB];
      } tiles;
      float patches[kMatmulThreads / 32][16 * kPatch];
    };
  };

  // 128 x 32 (or 32 x 128) elements, two 16-byte vectors per thread.
  struct Staged {
    uint4 v[2];
  };
  // `outer` counts rows as stored, `inner` the contiguous dim.
  template <int kInner>
  static __device__ __forceinline__ Staged fetch_tile(const T* from, int64_t ld, int64_t outer0,
                                                      int64_t outer, int64_t inner0, int64_t inner) {
    Staged s;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int at = (static_cast<int>(threadIdx.x) + i * kMatmulThreads) * 8;
      const int64_t row = outer0 + at / kInner, column = inner0 + at % kInner;
      s.v[i] =
          row < outer && column < inner
              ? *reinterpret_cast<const uint4*>(reinterpret_cast<const uint16_t*>(from) + row * ld + column)
              : make_uint4(0, 0, 0, 0);
    }
    return s;
  }
  template <int kInner, int kLd>
  static __device__ __forceinline__ void put_tile(const Staged& s, uint16_t* to) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int at = (static_cast<int>(threadIdx.x) + i * kMatmulThreads) * 8;
      *reinterpret_cast<uint4*>(to + at / kInner * kLd + at % kInner) = s.v[i];
    }
  }

  template <class C>
  static __device__ void run(const TileMatmul<T, T, C>& p, int64_t m0, int64_t n0, Memory& memory) {
    namespace wmma = nvcuda::wmma;
    using LayoutA = std::conditional_t<kTransA, wmma::col_major, wmma::row_major>;
    using LayoutB = std::conditional_t<kTransB, wmma::col_major, wmma::row_major>;
    const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
    const int wm = warp / 4 * 64, wn = warp % 4 * 32;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[4][2];
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 2; ++j) wmma::fill_fragment(sum[i][j], 0.0f);
    const auto fetch_a = [&](int64_t k0) {
      if constexpr (kTransA)
        return fetch_tile<kM>(p.a, p.lda, k0, p.k, m0, p.m);
      else
        return fetch_tile<kK>(p.a, p.lda, m0, p.m, k0, p.k);
    };
    const auto fetch_b = [&](int64_t k0) {
      if constexpr (kTransB)
        return fetch_tile<kK>(p.b, p.ldb, n0, p.n, k0, p.k);
      else
        return fetch_tile<kN>(p.b, p.ldb, k0, p.k, n0, p.n);
    };
    const auto put_both = [&](const Staged& a, const Staged& b, int half) {
      put_tile<kTransA ? kM : kK, kLdA>(a, memory.tiles.a[half]);
      put_tile<kTransB ? kK : kN, kLdB>(b, memory.tiles.b[half]);
    };
    __syncthreads();  // the memory may still be read by the previous tile
    if (p.k > 0) put_both(fetch_a(0), fetch_b(0), 0);
    __syncthreads();
    int half = 0;
    for (int64_t k0 = 0; k0 < p.k; k0 += kK, half ^= 1) {
      Staged next_a, next_b;
      const bool more = k0 + kK < p.k;
      if (more) {
        next_a = fetch_a(k0 + kK);
        next_b = fetch_b(k0 + kK);
      }
      const auto* a = reinterpret_cast<const Element*>(memory.tiles.a[half]);
      const auto* b = reinterpret_cast<const Element*>(memory.tiles.b[half]);
#pragma unroll
      for (int k = 0; k < kK; k += 16) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, Element, LayoutA> left[4];
        wmma::fragment<wmma::matrix_b, 16, 16, 16, Element, LayoutB> right[2];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int m = wm + 16 * i;
          wmma::load_matrix_sync(left[i], a + (kTransA ? k * kLdA + m : m * kLdA + k), kLdA);
        }
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int n = wn + 16 * j;
          wmma::load_matrix_sync(right[j], b + (kTransB ? n * kLdB + k : k * kLdB + n), kLdB);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int j = 0; j < 2; ++j) wmma::mma_sync(sum[i][j], left[i], right[j], sum[i][j]);
      }
      if (more) put_both(next_a, next_b, half ^ 1);
      __syncthreads();
    }
    float* const patch = memory.patches[warp];
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        wmma::store_matrix_sync(patch, sum[i][j], kPatch, wmma::mem_row_major);
        __syncwarp();
        for (int at = lane; at < 256; at += 32) {
          const int64_t m = m0 + wm + 16 * i + at / 16, n = n0 + wn + 16 * j + at % 16;
          if (m < p.m && n < p.n)
            finish_element(p.addend, p.c, p.accumulate, m * p.ldc + n, patch[at / 16 * kPatch + at % 16]);
        }
        __syncwarp();
      }
  }
};

// The tile for operands A and B whose rows may be read 16 bytes at a time (kWideRows).
template <class A, class B, bool kTransA, bool kTransB, bool kWideRows>
using TileFor = std::conditional_t<
    kWideRows && kHalf<A> && std::is_same_v<A, B>, TensorTile<A, kTransA, kTransB>,
    PlainTile<std::conditional_t<std::is_same_v<A, double>, double, float>, kTransA, kTransB>>;

}  // namespace quintet::kernels::cuda
