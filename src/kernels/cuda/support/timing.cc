#include "kernels/cuda/support/timing.h"

#include <cuda_runtime.h>

#include "kernels/cuda/elementwise/pointwise.h"
#include "kernels/cuda/fp8/noise.h"
#include "kernels/cuda/support/launch.cuh"

namespace quintet::kernels::cuda {
namespace {

struct TimedEvent {
  TimedEvent() { check(cudaEventCreate(&at), "timing"); }
  ~TimedEvent() { cudaEventDestroy(at); }
  TimedEvent(const TimedEvent&) = delete;
  cudaEvent_t at = nullptr;
};

}  // namespace

double microseconds_of(const std::function<void()>& launch, int repeats, Stream stream) {
  const TimedEvent begin, end;
  check(cudaEventRecord(begin.at, stream), "timing");
  for (int i = 0; i < repeats; ++i) launch();
  check(cudaEventRecord(end.at, stream), "timing");
  check(cudaEventSynchronize(end.at), "timing");
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, begin.at, end.at), "timing");
  return static_cast<double>(milliseconds) * 1000 / repeats;
}

void fill_noise(void* y, base::DType type, int64_t n, Stream stream) {
  if (type == base::DType::F64) return fill_noise(static_cast<double*>(y), n, stream);
  if (type == base::DType::F32) return fill_noise(static_cast<float*>(y), n, stream);
  if (type == base::DType::F16) return fill_noise(static_cast<F16*>(y), n, stream);
  if (type == base::DType::E4M3 || type == base::DType::E5M2) return fill_noise_codes(y, type, n, stream);
  fill_noise(static_cast<Bf16*>(y), n, stream);
}

}  // namespace quintet::kernels::cuda
