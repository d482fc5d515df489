#include "kernels/cuda/fp8/convert.cuh"
#include "kernels/cuda/fp8/noise.h"
#include "kernels/cuda/support/launch.cuh"

namespace quintet::kernels::cuda {
namespace {

constexpr int kThreads = 256;

template <base::DType kFormat>
__global__ void __launch_bounds__(kThreads) noise_kernel(uint2* codes, int64_t eights, float largest) {
  await_previous();
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= eights) return;
  Eight<float> e;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    uint32_t h = static_cast<uint32_t>(at * 8 + k) * 2654435761u;
    h = (h ^ h >> 15) * 2246822519u;
    e.v[k] = static_cast<float>(static_cast<int32_t>(h ^ h >> 13)) * 0x1p-31f;
  }
  codes[at] = codes_of<kFormat>(e, largest);
}

}  // namespace

void fill_noise_codes(void* codes, base::DType format, int64_t n, Stream stream) {
  const auto blocks = static_cast<unsigned>(divide_up(n / 8, int64_t{kThreads}));
  if (blocks == 0) return;
  auto* const to = static_cast<uint2*>(codes);
  if (format == base::DType::E5M2)
    noise_kernel<base::DType::E5M2><<<blocks, kThreads, 0, stream>>>(to, n / 8, 57344.0f);
  else
    noise_kernel<base::DType::E4M3><<<blocks, kThreads, 0, stream>>>(to, n / 8, 448.0f);
  check_launch("noise");
}

}  // namespace quintet::kernels::cuda
