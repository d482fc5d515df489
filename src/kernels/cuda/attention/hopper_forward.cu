#include <algorithm>

#include "kernels/cuda/attention/hopper_forward.cuh"
#include "kernels/cuda/attention/hopper_maps.h"
#include "kernels/cuda/attention/launch_hopper.h"

namespace quintet::kernels::cuda {

int hopper_blocks() {
#if defined(QUINTET_SM90A)
  int device = 0, major = 0, minor = 0, processors = 0;
  check(cudaGetDevice(&device), "attention");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "attention");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "attention");
  check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device), "attention");
  return major == 9 && minor == 0 && has_tensor_maps() ? processors : 0;
#else
  return 0;
#endif
}

bool suits_hopper(const TiledProblem& p, bool backward) {
  return p.head_dim == p.value_dim && (p.head_dim == 64 || p.head_dim == 128) && p.group <= 64 &&
         p.soft_cap == 0 && p.threshold == 0 && (!backward || p.sinks == nullptr);
}

int hopper_forward_tokens(const TiledProblem& p) { return hopper_forward_rows(p.head_dim) / p.group; }

template <class T>
void launch_hopper_forward(TiledProblem p, int blocks, int64_t tiles, Stream stream) {
  const auto run = [&]<int kWidth>() {
    using Sizes = HopperForward<kWidth>;
    p.packing = HeadPacking(p.group, Sizes::kRows);
    const CUtensorMap q = describe_heads<T>(p.q, p.q_count, p.heads, kWidth, p.q_stride, p.group,
                                            p.packing.tokens),
                      k = describe_heads<T>(p.k, p.k_count, p.kv_heads, kWidth, p.k_stride, 1, Sizes::kKeys),
                      v = describe_heads<T>(p.v, p.k_count, p.kv_heads, kWidth, p.v_stride, 1, Sizes::kKeys);
    const auto kernel = hopper_forward<T, kWidth>;
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Sizes::kBytes),
          "attention");
    kernel<<<static_cast<unsigned>(std::min<int64_t>(blocks, tiles * p.kv_heads)), Sizes::kThreads,
             Sizes::kBytes, stream>>>(q, k, v, p, static_cast<int>(tiles));
    check_launch("attention");
  };
  if (p.head_dim == 64)
    run.template operator()<64>();
  else
    run.template operator()<128>();
}
template void launch_hopper_forward<Bf16>(TiledProblem, int, int64_t, Stream);
template void launch_hopper_forward<F16>(TiledProblem, int, int64_t, Stream);

}  // namespace quintet::kernels::cuda
