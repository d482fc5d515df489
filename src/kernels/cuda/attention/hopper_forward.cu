#include <algorithm>

#include "kernels/cuda/attention/hopper_forward.cuh"
#include "kernels/cuda/attention/hopper_maps.h"
#include "kernels/cuda/attention/launch_hopper.h"
#include "kernels/cuda/attention/launch_tiled.h"

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

bool suits_hopper(const TiledProblem& p) { return p.group <= kHopperGroup; }

int hopper_forward_tokens(HeadSizes sizes, const TiledProblem& p) {
  return hopper_forward_rows(sizes, p.extra()) / p.group;
}

template <class T>
void launch_hopper_forward(HeadSizes sizes, TiledProblem p, int blocks, int64_t tiles, Stream stream) {
  with_head_sizes(sizes, p, [&]<int kQk, int kValue, bool kExtra>() {
    using Sizes = HopperForward<kQk, kValue, kExtra>;
    p.packing = HeadPacking(p.group, Sizes::kRows);
    const CUtensorMap q = describe_queries<T>(p, Sizes::kRows), k = describe_keys<T>(p, Sizes::kKeys),
                      v = describe_values<T>(p, Sizes::kKeys);
    const bool merges = p.wide && Sizes::kWideBytes > 0;
    const CUtensorMap out = merges ? describe_wide(p, p.o_out, Sizes::kRows) : q,
                      before =
                          merges && p.o_before != nullptr ? describe_wide(p, p.o_before, Sizes::kRows) : out;
    const int bytes = Sizes::kBytes + (merges ? Sizes::kWideBytes : 0);
    const auto kernel = hopper_forward<T, kQk, kValue, kExtra>;
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), "attention");
    kernel<<<static_cast<unsigned>(std::min<int64_t>(blocks, tiles * p.kv_heads)), Sizes::kThreads,
             static_cast<size_t>(bytes), stream>>>(q, k, v, before, out, p, static_cast<int>(tiles));
    check_launch("attention");
  });
}
template void launch_hopper_forward<Bf16>(HeadSizes, TiledProblem, int, int64_t, Stream);
template void launch_hopper_forward<F16>(HeadSizes, TiledProblem, int, int64_t, Stream);

}  // namespace quintet::kernels::cuda
