// base::philox on the device.
#pragma once

#include "kernels/cuda/pack.cuh"

namespace quintet::kernels::cuda {

__device__ __forceinline__ Words<4> philox(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint32_t high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
    const uint32_t high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// Words from this one on are kept, where a share p of all is dropped.
inline uint64_t keep_threshold(double p) {
  const double scaled = p * 0x1p32;
  const auto floor = static_cast<uint64_t>(scaled);
  return floor + (static_cast<double>(floor) < scaled ? 1 : 0);
}

}  // namespace quintet::kernels::cuda
