// V elements of T moved as one access, and their values in Stat<T>.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/support/types.h"

namespace quintet::kernels::cuda {

// The 16-bit types.
template <class T>
inline constexpr bool kHalf = std::is_same_v<T, Bf16> || std::is_same_v<T, F16>;

// Elements in 16 bytes.
template <class T>
inline constexpr int kWide = 16 / static_cast<int>(sizeof(T));

template <int kBytes>
struct RawOf;
template <>
struct RawOf<2> {
  using type = uint16_t;
};
template <>
struct RawOf<4> {
  using type = uint32_t;
};
template <>
struct RawOf<8> {
  using type = uint2;
};
template <>
struct RawOf<16> {
  using type = uint4;
};

template <class T, int V>
struct Pack {
  typename RawOf<static_cast<int>(sizeof(T)) * V>::type raw;
};

template <class S, int V>
struct Vals {
  S v[V];
};

template <int V, class T>
__device__ __forceinline__ Pack<T, V> fetch(const T* p) {
  return *reinterpret_cast<const Pack<T, V>*>(p);
}
template <int V, class T>
__device__ __forceinline__ void put(T* p, Pack<T, V> value) {
  *reinterpret_cast<Pack<T, V>*>(p) = value;
}

template <int kWords>
struct Words {
  uint32_t w[kWords];
};
__device__ __forceinline__ Words<1> words_of(uint32_t r) { return {{r}}; }
__device__ __forceinline__ Words<2> words_of(uint2 r) { return {{r.x, r.y}}; }
__device__ __forceinline__ Words<4> words_of(uint4 r) { return {{r.x, r.y, r.z, r.w}}; }
__device__ __forceinline__ uint32_t raw_of(const Words<1>& w) { return w.w[0]; }
__device__ __forceinline__ uint2 raw_of(const Words<2>& w) { return make_uint2(w.w[0], w.w[1]); }
__device__ __forceinline__ uint4 raw_of(const Words<4>& w) {
  return make_uint4(w.w[0], w.w[1], w.w[2], w.w[3]);
}

// Two elements of a word, the lower first, and back; rounding is to nearest even.
template <class T>
__device__ __forceinline__ float2 pair_of(uint32_t word) {
  if constexpr (std::is_same_v<T, F16>)
    return __half22float2(*reinterpret_cast<const __half2*>(&word));
  else
    return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u));
}
template <class T>
__device__ __forceinline__ uint32_t word_of(float low, float high) {
  if constexpr (std::is_same_v<T, F16>) {
    const __half2 two = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&two);
  } else {
    const __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&two);
  }
}

template <class T, int V>
__device__ __forceinline__ Vals<Stat<T>, V> values(Pack<T, V> p) {
  Vals<Stat<T>, V> out;
  if constexpr (kHalf<T> && V == 1) {
    out.v[0] = pair_of<T>(p.raw).x;
  } else {
    const auto w = words_of(p.raw);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if constexpr (kHalf<T>)
        out.v[i] = i % 2 == 0 ? pair_of<T>(w.w[i / 2]).x : pair_of<T>(w.w[i / 2]).y;
      else if constexpr (sizeof(T) == 4)
        out.v[i] = __uint_as_float(w.w[i]);
      else
        out.v[i] = __hiloint2double(static_cast<int>(w.w[2 * i + 1]), static_cast<int>(w.w[2 * i]));
    }
  }
  return out;
}

// Rounds to nearest even.
template <class T, int V>
__device__ __forceinline__ Pack<T, V> packed(const Vals<Stat<T>, V>& x) {
  Pack<T, V> out;
  if constexpr (std::is_same_v<T, F16> && V == 1) {
    out.raw = __half_as_ushort(__float2half_rn(x.v[0]));
  } else if constexpr (kHalf<T> && V == 1) {
    out.raw = __bfloat16_as_ushort(__float2bfloat16_rn(x.v[0]));
  } else {
    Words<static_cast<int>(sizeof(T)) * V / 4> w;
    if constexpr (kHalf<T>) {
#pragma unroll
      for (int i = 0; i < V / 2; ++i) w.w[i] = word_of<T>(x.v[2 * i], x.v[2 * i + 1]);
    } else {
#pragma unroll
      for (int i = 0; i < V; ++i) {
        if constexpr (sizeof(T) == 4) {
          w.w[i] = __float_as_uint(x.v[i]);
        } else {
          w.w[2 * i] = static_cast<uint32_t>(__double2loint(x.v[i]));
          w.w[2 * i + 1] = static_cast<uint32_t>(__double2hiint(x.v[i]));
        }
      }
    }
    out.raw = raw_of(w);
  }
  return out;
}

template <int V, class T>
__device__ __forceinline__ Vals<Stat<T>, V> load(const T* p) {
  return values<T, V>(fetch<V>(p));
}
template <int V, class T>
__device__ __forceinline__ void store(T* p, const Vals<Stat<T>, V>& x) {
  put<V>(p, packed<T, V>(x));
}

// exp and division for values that end in T: bf16 keeps 8 bits and f16 11, so the fast forms (about 2^-21
// relative) suffice.
template <class T>
struct Math {
  using S = Stat<T>;
  static __device__ __forceinline__ S exp(S x) {
    if constexpr (kHalf<T>)
      return __expf(x);
    else if constexpr (std::is_same_v<T, float>)
      return expf(x);
    else
      return ::exp(x);
  }
  // exp(x - m)
  static __device__ __forceinline__ S exp_less(S x, S m) {
    if constexpr (kHalf<T>) {  // one multiply-add, one exp2 instruction
      constexpr float kLog2E = 1.4426950408889634f;
      float y;
      asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(fmaf(x, kLog2E, -m * kLog2E)));
      return y;
    } else {
      return exp(x - m);
    }
  }
  static __device__ __forceinline__ S divide(S a, S b) {
    if constexpr (kHalf<T>)
      return __fdividef(a, b);
    else
      return a / b;
  }
};

}  // namespace quintet::kernels::cuda
