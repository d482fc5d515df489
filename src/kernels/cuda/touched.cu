#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/touched.h"

namespace quintet::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr unsigned kBlocks = 1024;
constexpr int kAhead = 4;  // words of a thread on their way

// Words of 16 bytes from `head` on, single bytes before and behind them.
__global__ void __launch_bounds__(kThreads)
    last_changed_kernel(const unsigned char* data, int64_t bytes, int64_t head, unsigned char pattern,
                        unsigned long long* top) {
  await_previous();
  const unsigned expected = pattern * 0x01010101u;
  const int64_t words = bytes > head ? (bytes - head) / 16 : 0;
  const auto* wide = reinterpret_cast<const uint4*>(data + head);
  const int64_t me = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  unsigned long long last = 0;
  for (int64_t first = me; first < words; first += kAhead * step) {
    uint4 ahead[kAhead];
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const int64_t w = first + u * step;
      ahead[u] = w < words ? wide[w] : make_uint4(expected, expected, expected, expected);
    }
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const uint4 v = ahead[u];
      if (v.x == expected && v.y == expected && v.z == expected && v.w == expected) continue;
      const int64_t begin = head + (first + u * step) * 16;
#pragma unroll 1
      for (int64_t i = begin; i < begin + 16; ++i)
        if (data[i] != pattern) last = static_cast<unsigned long long>(i) + 1;
    }
  }
  if (me == 0) {
    const int64_t before = head < bytes ? head : bytes;
    for (int64_t i = 0; i < before; ++i)
      if (data[i] != pattern && static_cast<unsigned long long>(i) >= last) last = i + 1;
    for (int64_t i = head + words * 16; i < bytes; ++i)
      if (data[i] != pattern) last = static_cast<unsigned long long>(i) + 1;
  }
  if (last > 0) atomicMax(top, last);
}

}  // namespace

void last_changed(const std::byte* data, int64_t bytes, unsigned char pattern, unsigned long long* top,
                  Stream stream) {
  check(cudaMemsetAsync(top, 0, sizeof(*top), stream), "last_changed");
  if (bytes <= 0) return;
  const int64_t head = static_cast<int64_t>((16 - reinterpret_cast<uintptr_t>(data) % 16) % 16);
  last_changed_kernel<<<kBlocks, kThreads, 0, stream>>>(reinterpret_cast<const unsigned char*>(data), bytes,
                                                        head, pattern, top);
  check_launch("last_changed");
}

}  // namespace quintet::kernels::cuda
