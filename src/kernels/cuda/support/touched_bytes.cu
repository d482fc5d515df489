#include "kernels/cuda/support/launch.cuh"
#include "kernels/cuda/support/thread_group.cuh"
#include "kernels/cuda/support/touched_bytes.h"

namespace quintet::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kAhead = 4;  // words in flight per thread

// Words of 16 bytes from `head` on, single bytes before and after them.
__global__ void __launch_bounds__(kThreads)
    last_changed_kernel(const unsigned char* data, int64_t bytes, int64_t head, unsigned char pattern,
                        unsigned long long* top) {
  await_previous();
  const unsigned expected = pattern * 0x01010101u;
  const int64_t words = bytes > head ? (bytes - head) / 16 : 0;
  const auto* wide = reinterpret_cast<const uint4*>(data + head);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kThreads * kAhead) + threadIdx.x;
  unsigned long long last = 0;
  uint4 ahead[kAhead];
#pragma unroll
  for (int u = 0; u < kAhead; ++u) {
    const int64_t w = first + u * kThreads;
    ahead[u] = w < words ? wide[w] : make_uint4(expected, expected, expected, expected);
  }
#pragma unroll
  for (int u = 0; u < kAhead; ++u) {
    const unsigned differs[4] = {ahead[u].x ^ expected, ahead[u].y ^ expected, ahead[u].z ^ expected,
                                 ahead[u].w ^ expected};
#pragma unroll
    for (int k = 0; k < 4; ++k)
      if (differs[k] != 0)
        last = static_cast<unsigned long long>(head + (first + u * kThreads) * 16 + 4 * k +
                                               (31 - __clz(static_cast<int>(differs[k]))) / 8 + 1);
  }
  if (first == 0) {
    const int64_t before = head < bytes ? head : bytes;
    for (int64_t i = 0; i < before; ++i)
      if (data[i] != pattern && static_cast<unsigned long long>(i) >= last) last = i + 1;
    for (int64_t i = head + words * 16; i < bytes; ++i)
      if (data[i] != pattern) last = static_cast<unsigned long long>(i) + 1;
  }
  last = warp_fold(last, [](unsigned long long a, unsigned long long b) { return a > b ? a : b; });
  if (threadIdx.x % 32 == 0 && last > 0) atomicMax(top, last);
}

}  // namespace

void last_changed(const std::byte* data, int64_t bytes, unsigned char pattern, unsigned long long* top,
                  Stream stream) {
  check(cudaMemsetAsync(top, 0, sizeof(*top), stream), "last_changed");
  if (bytes <= 0) return;
  const int64_t head = static_cast<int64_t>((16 - reinterpret_cast<uintptr_t>(data) % 16) % 16);
  const int64_t blocks = divide_up(bytes, int64_t{16} * kThreads * kAhead);
  last_changed_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(
      reinterpret_cast<const unsigned char*>(data), bytes, head, pattern, top);
  check_launch("last_changed");
}

}  // namespace quintet::kernels::cuda
