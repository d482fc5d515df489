#include "kernels/cuda/fp8/scales.h"
#include "kernels/cuda/support/launch.cuh"

namespace quintet::kernels::cuda {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads)
    delayed_scales_kernel(const double* history, int64_t length, const double* largest, const double* initial,
                          int64_t n, float* scales, int64_t stride) {
  await_previous();
  const int64_t s = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (s >= n) return;
  double amax = 0;
  for (int64_t i = 0; i < length; ++i) amax = fmax(amax, history[s * length + i]);
  double scale = initial[s];
  if (amax > 0) scale = ldexp(1.0, max(-126, min(126, ilogb(largest[s] / amax))));
  for (int64_t i = 0; i < stride; ++i) {
    scales[s * stride + i] = i == 0 ? static_cast<float>(scale) : 0.0f;
    scales[(n + s) * stride + i] = i == 0 ? static_cast<float>(1 / scale) : 0.0f;
  }
}

__global__ void __launch_bounds__(kThreads)
    record_amax_kernel(const double* amax, const int64_t* rows, int64_t count, const double* ok,
                       const double* update_count, int64_t length, int64_t num_rows, double* history) {
  await_previous();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (row >= num_rows || *ok == 0) return;
  double largest = 0;
  bool finite = true;
  for (int64_t i = 0; i < count; ++i) {
    if (rows[i] != row) continue;
    finite = finite && isfinite(amax[i]);
    largest = fmax(largest, amax[i]);
  }
  const int64_t slot = (static_cast<int64_t>(*update_count) + length - 1) % length;
  history[row * length + slot] = finite ? largest : 0;
}

unsigned blocks_of(int64_t n) { return static_cast<unsigned>(divide_up(n, int64_t{kThreads})); }

}  // namespace

void delayed_scales(const double* history, int64_t length, const double* largest, const double* initial,
                    int64_t n, float* scales, int64_t stride, Stream stream) {
  if (n <= 0) return;
  delayed_scales_kernel<<<blocks_of(n), kThreads, 0, stream>>>(history, length, largest, initial, n, scales,
                                                               stride);
  check_launch("delayed_scales");
}

void record_amax(const double* amax, const int64_t* rows, int64_t count, const double* ok,
                 const double* update_count, int64_t length, int64_t num_rows, double* history,
                 Stream stream) {
  if (num_rows <= 0) return;
  record_amax_kernel<<<blocks_of(num_rows), kThreads, 0, stream>>>(amax, rows, count, ok, update_count,
                                                                   length, num_rows, history);
  check_launch("record_amax");
}

}  // namespace quintet::kernels::cuda
