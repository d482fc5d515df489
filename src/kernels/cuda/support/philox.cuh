// base::philox on the device.
#pragma once

#include "kernels/cuda/support/vector16.cuh"

namespace quintet::kernels::cuda {

// N counters become the words of N draws with one key, interleaved: the multiplications of one fill the
// latency of another, and what the counters share is computed once.
template <int N>
__device__ __forceinline__ void philox_each(uint64_t key, Words<4> (&c)[N]) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      // 64-bit products: one instruction gives both halves.
      const uint64_t first = uint64_t{0xD2511F53u} * c[i].w[0], second = uint64_t{0xCD9E8D57u} * c[i].w[2];
      c[i] = {{static_cast<uint32_t>(second >> 32) ^ c[i].w[1] ^ k0, static_cast<uint32_t>(second),
               static_cast<uint32_t>(first >> 32) ^ c[i].w[3] ^ k1, static_cast<uint32_t>(first)}};
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}

__device__ __forceinline__ Words<4> philox(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3) {
  Words<4> c[1] = {{{c0, c1, c2, c3}}};
  philox_each(key, c);
  return c[0];
}

// Words at or above it are kept when a fraction p is dropped.
inline uint64_t keep_threshold(double p) {
  const double scaled = p * 0x1p32;
  const auto floor = static_cast<uint64_t>(scaled);
  return floor + (static_cast<double>(floor) < scaled ? 1 : 0);
}

}  // namespace quintet::kernels::cuda
