#include "kernels/cuda/support/host_signal.h"
#include "kernels/cuda/support/launch.cuh"

namespace quintet::kernels::cuda {
namespace {

__global__ void mark_kernel(volatile uint32_t* word, uint32_t value) {
  await_previous();
  *word = value;
  __threadfence_system();
}

}  // namespace

void mark(uint32_t* word, uint32_t value, Stream stream) {
  mark_kernel<<<1, 1, 0, stream>>>(word, value);
  check_launch("mark");
}

}  // namespace quintet::kernels::cuda
