#include "kernels/cuda/support/launch.cuh"
#include "kernels/cuda/support/read_rate.h"

namespace quintet::kernels::cuda {
namespace {

constexpr int kThreads = 512, kUnroll = 8;
constexpr unsigned kBlocks = 132 * 4;

__global__ void __launch_bounds__(kThreads) read_words(const uint4* memory, int64_t count, uint32_t* result) {
  await_previous();
  uint32_t all = 0;
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  for (; i + (kUnroll - 1) * stride < count; i += kUnroll * stride) {
    uint4 v[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) v[u] = __ldcs(memory + i + u * stride);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) all ^= v[u].x ^ v[u].y ^ v[u].z ^ v[u].w;
  }
  for (; i < count; i += stride) {
    const uint4 v = __ldcs(memory + i);
    all ^= v.x ^ v.y ^ v.z ^ v.w;
  }
  if (all == 0x9E3779B9u) *result = all;
}

}  // namespace

void read_all(const void* memory, int64_t bytes, uint32_t* result, Stream stream) {
  read_words<<<kBlocks, kThreads, 0, stream>>>(static_cast<const uint4*>(memory), bytes / 16, result);
  check_launch("read_all");
}

}  // namespace quintet::kernels::cuda
