#include "kernels/cuda/support/fill.h"
#include "kernels/cuda/support/launch.cuh"
#include "kernels/cuda/support/philox.cuh"

namespace quintet::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 1 << 20;

__device__ int64_t place_of(const Box& b, int64_t local) {
  int64_t at = 0, stride = 1;
  for (int d = b.dims; d-- > 0;) {
    const int64_t next = local / b.box[d], i = b.begin[d] + (local - next * b.box[d]);
    local = next;
    if (i >= b.whole[d]) return -1;
    at += i * stride;
    stride *= b.whole[d];
  }
  return at;
}

__device__ double normal(uint64_t key, uint64_t index) {
  const Words<4> w = philox(key, static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 0);
  const uint64_t bits = (static_cast<uint64_t>(w.w[0]) << 20) | (w.w[1] >> 12);
  const double u1 = (static_cast<double>(bits) + 0.5) * 0x1p-52, u2 = static_cast<double>(w.w[2]) * 0x1p-32;
  constexpr double kTwoPi = 2.0 * 3.141592653589793238462643383279502884;
  return sqrt(-2.0 * log(u1)) * cos(kTwoPi * u2);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    draw_kernel(T* out, int64_t n, Numbers numbers, double stddev, uint64_t key, Box box, int64_t first) {
  await_previous();
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += step) {
    const int64_t at = numbers == Numbers::Zeros ? -1 : place_of(box, first + i);
    double v = 0;
    if (at >= 0) v = numbers == Numbers::Ones ? 1.0 : stddev * normal(key, static_cast<uint64_t>(at));
    store<1>(out + i, Vals<Stat<T>, 1>{{static_cast<Stat<T>>(v)}});
  }
}

}  // namespace

template <class T>
void draw(T* out, int64_t n, Numbers numbers, double stddev, uint64_t key, const Box& box, int64_t first,
          Stream stream) {
  if (n <= 0) return;
  const int64_t blocks = divide_up(n, kThreads);
  draw_kernel<<<static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks), kThreads, 0, stream>>>(
      out, n, numbers, stddev, key, box, first);
  check_launch("draw");
}

template decltype(draw<double>) draw<double>;
template decltype(draw<float>) draw<float>;
template decltype(draw<Bf16>) draw<Bf16>;
template decltype(draw<F16>) draw<F16>;

}  // namespace quintet::kernels::cuda
