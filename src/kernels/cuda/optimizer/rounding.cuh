// Rounding of moments: to nearest, or stochastic as kernels/stochastic_rounding.h has it, bit for bit.
#pragma once

#include "kernels/cuda/elementwise/each.cuh"
#include "kernels/cuda/support/philox.cuh"
#include "kernels/update_ranges.h"

namespace quintet::kernels::cuda {
namespace {

// How moments are rounded: part of the place of a range.
struct Nearest {
  static Nearest of(const auto&) { return {}; }
  template <class S, int V>
  __device__ __forceinline__ void round(int64_t, const double*, Vals<S, V>&, Vals<S, V>*) const {}
};

struct Stochastic {
  Origin origin;
  static Stochastic of(const auto& range) { return {range.origin}; }

  static __device__ __forceinline__ float rounded(float x, uint32_t random) {
    const uint32_t bits = __float_as_uint(x);
    return (bits & 0x7f800000u) == 0x7f800000u ? x : __uint_as_float((bits + random) & 0xffff0000u);
  }
  static __device__ __forceinline__ double rounded(double x, uint32_t random) {
    constexpr int kCut = 52 - 7;
    const auto bits = static_cast<uint64_t>(__double_as_longlong(x));
    if ((bits << 1 >> 53) == 0x7ffu) return x;
    return __longlong_as_double(
        static_cast<int64_t>((bits + (uint64_t{random} << (kCut - 16))) >> kCut << kCut));
  }
  __device__ __forceinline__ Words<4> words(int64_t element, const double* update) const {
    const auto four = static_cast<uint64_t>(element) >> 2, step = static_cast<uint64_t>(*update);
    return philox(origin.key, static_cast<uint32_t>(four), static_cast<uint32_t>(four >> 32),
                  static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32));
  }
  // Moments of element i and those after it.
  template <class S, int V>
  __device__ __forceinline__ void round(int64_t i, const double* update, Vals<S, V>& first,
                                        Vals<S, V>* second) const {
    const int64_t at = origin.first + i, in_run = at % origin.run;
    const int64_t element = origin.base + at / origin.run * origin.stride + in_run;
    const bool together = element % 4 + V <= 4 && in_run + V <= origin.run;
    Words<4> w = words(element, update);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      int64_t own = element + j;
      if (!together && j > 0) {
        own = origin.base + (at + j) / origin.run * origin.stride + (at + j) % origin.run;
        w = words(own, update);
      }
      uint32_t word = w.w[0];
#pragma unroll
      for (int k = 1; k < 4; ++k) word = own % 4 == k ? w.w[k] : word;
      first.v[j] = rounded(first.v[j], word & 0xffffu);
      if (second != nullptr) second->v[j] = rounded(second->v[j], word >> 16);
    }
  }
};

}  // namespace
}  // namespace quintet::kernels::cuda
