// Eight neighbouring values become eight codes.
#pragma once

#include <cuda_fp8.h>

#include "kernels/cuda/fp8/codes.h"
#include "kernels/cuda/support/vector16.cuh"

namespace quintet::kernels::cuda {

template <class T>
struct Eight;
template <>
struct Eight<Bf16> {
  Words<4> w;
};
template <>
struct Eight<float> {
  float v[8];
};

__device__ __forceinline__ Eight<Bf16> fetch_eight(const Bf16* p) {
  return {words_of(*reinterpret_cast<const uint4*>(p))};
}
__device__ __forceinline__ float2 pair_at(const Eight<Bf16>& e, int i) { return pair_of<Bf16>(e.w.w[i]); }
__device__ __forceinline__ float2 pair_at(const Eight<float>& e, int i) {
  return make_float2(e.v[2 * i], e.v[2 * i + 1]);
}
// Rounds to nearest even.
__device__ __forceinline__ Eight<Bf16> rounded(const Vals<float, 8>& x) {
  return {words_of(packed<Bf16, 8>(x).raw)};
}

template <base::DType kFormat, class T>
__device__ __forceinline__ uint2 codes_of(const Eight<T>& e, float scale) {
  constexpr auto kInterpretation = kFormat == base::DType::E4M3 ? __NV_E4M3 : __NV_E5M2;
  uint32_t two[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 v = pair_at(e, i);
    two[i] = __nv_cvt_float2_to_fp8x2(make_float2(__fmul_rn(v.x, scale), __fmul_rn(v.y, scale)),
                                      __NV_SATFINITE, kInterpretation);
  }
  return make_uint2(two[0] | two[1] << 16, two[2] | two[3] << 16);
}

// Eight values with a scale each.
template <base::DType kFormat>
__device__ __forceinline__ uint2 codes_of(const Eight<Bf16>& e, const float (&scales)[8]) {
  constexpr auto kInterpretation = kFormat == base::DType::E4M3 ? __NV_E4M3 : __NV_E5M2;
  uint32_t two[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 v = pair_at(e, i);
    two[i] = __nv_cvt_float2_to_fp8x2(
        make_float2(__fmul_rn(v.x, scales[2 * i]), __fmul_rn(v.y, scales[2 * i + 1])), __NV_SATFINITE,
        kInterpretation);
  }
  return make_uint2(two[0] | two[1] << 16, two[2] | two[3] << 16);
}

// The bits of eight magnitudes, two per word: they are ordered like integers, NaN above infinity.
__device__ __forceinline__ uint32_t magnitudes_at(const Eight<Bf16>& e, int i) {
  return e.w.w[i] & 0x7fff7fffu;
}

// How many values that are not zero have codes that are. At most 127 times 8 values.
class Vanished {
 public:
  __device__ __forceinline__ void add(const Eight<Bf16>& e, uint2 codes) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      values_ +=
          (magnitudes_at(e, i) + 0x7fff7fffu) >> 15 & 0x00010001u;  // carries into the sign unless zero
    codes_ += ((codes.x & 0x7f7f7f7fu) + 0x7f7f7f7fu) >> 7 & 0x01010101u;
    codes_ += ((codes.y & 0x7f7f7f7fu) + 0x7f7f7f7fu) >> 7 & 0x01010101u;
  }
  __device__ __forceinline__ uint32_t count() const {
    return (values_ & 0xffffu) + (values_ >> 16) - __dp4a(codes_, 0x01010101u, 0u);
  }

 private:
  uint32_t values_ = 0;  // that are not zero: two counts
  uint32_t codes_ = 0;   // that are not zero: four counts
};

template <base::DType kFormat>
inline constexpr float kLargestOf = kFormat == base::DType::E4M3 ? 448.0f : 57344.0f;

// What a thread has seen: the largest magnitude as the bits of a float, and counts. At most 127 times 8
// values.
template <base::DType kFormat>
class Seen {
 public:
  __device__ __forceinline__ void add(const Eight<Bf16>& e, uint2 codes, float scale) {
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) most = __vmaxu2(most, magnitudes_at(e, i));
    most = max(most << 16, most & 0xffff0000u);
    vanished_.add(e, codes);
    most_ = max(most_, most);
    if (!(__uint_as_float(most) * scale <= kLargestOf<kFormat>)) {  // rare
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 v = pair_at(e, i);
        saturated_ += (fabsf(v.x * scale) > kLargestOf<kFormat>)+(fabsf(v.y * scale) > kLargestOf<kFormat>);
      }
    }
  }
  __device__ __forceinline__ uint32_t most() const { return most_; }
  __device__ __forceinline__ uint32_t saturated() const { return saturated_; }
  __device__ __forceinline__ uint32_t vanished() const { return vanished_.count(); }

 private:
  uint32_t most_ = 0, saturated_ = 0;
  Vanished vanished_;
};

// Adds what the threads have seen to the measures. All threads of all blocks call it, once; `values` is the
// number of all.
template <class S>
__device__ __forceinline__ void add_measures(const S& seen, const CodeMeasures& to, int64_t values) {
  __shared__ uint32_t all[3];
  if (threadIdx.x < 3) all[threadIdx.x] = 0;
  __syncthreads();
  const uint32_t most = __reduce_max_sync(0xffffffffu, seen.most()),
                 saturated = __reduce_add_sync(0xffffffffu, seen.saturated()),
                 vanished = __reduce_add_sync(0xffffffffu, seen.vanished());
  if (threadIdx.x % 32 == 0) {
    atomicMax(&all[0], most);
    if (saturated > 0) atomicAdd(&all[1], saturated);
    if (vanished > 0) atomicAdd(&all[2], vanished);
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  // As integers, so that NaN is the largest; most blocks find a larger one there.
  const auto bits =
      static_cast<unsigned long long>(__double_as_longlong(static_cast<double>(__uint_as_float(all[0]))));
  auto* const amax = reinterpret_cast<unsigned long long*>(to.amax);
  if (bits > *static_cast<volatile unsigned long long*>(amax)) atomicMax(amax, bits);
  if (blockIdx.x == 0 && blockIdx.y == 0) atomicAdd(&to.rounded[0], static_cast<double>(values));
  if (all[1] > 0) atomicAdd(&to.rounded[1], static_cast<double>(all[1]));
  if (all[2] > 0) atomicAdd(&to.rounded[2], static_cast<double>(all[2]));
}

}  // namespace quintet::kernels::cuda
