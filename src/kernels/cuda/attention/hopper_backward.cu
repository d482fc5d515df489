#include <algorithm>

#include "kernels/cuda/attention/hopper_backward.cuh"
#include "kernels/cuda/attention/hopper_maps.h"
#include "kernels/cuda/attention/launch_hopper.h"
#include "kernels/cuda/attention/launch_tiled.h"

namespace quintet::kernels::cuda {
namespace {

template <class Kernel, class... Args>
void launch(Kernel kernel, int bytes, int blocks, int64_t items, Stream stream, const Args&... args) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
        "attention_backward");
  kernel<<<static_cast<unsigned>(std::min<int64_t>(blocks, items)), kBackwardThreads,
           static_cast<size_t>(bytes), stream>>>(args...);
  check_launch("attention_backward");
}

}  // namespace

int hopper_dq_tokens(const TiledProblem& p) { return kHopperDqRows / p.group; }

template <class T>
void launch_hopper_dq(HeadSizes sizes, TiledProblem p, int blocks, int64_t tiles, Stream stream) {
  with_head_sizes(sizes, p, [&]<int kQk, int kValue, bool kExtra>() {
    using Sizes = HopperDq<kQk, kValue, kExtra>;
    p.packing = HeadPacking(p.group, Sizes::kRows);
    launch(hopper_dq<T, kQk, kValue, kExtra>, Sizes::kBytes, blocks, tiles * p.kv_heads, stream,
           describe_queries<T>(p, Sizes::kRows), describe_dout<T>(p, Sizes::kRows),
           describe_keys<T>(p, Sizes::kKeys), describe_values<T>(p, Sizes::kKeys), p,
           static_cast<int>(tiles));
  });
}

template <class T>
void launch_hopper_dkv(HeadSizes sizes, TiledProblem p, int blocks, int64_t tiles, Stream stream) {
  if (hopper_pairs(sizes)) return launch_hopper_pair<T>(sizes, p, blocks, tiles, stream);
  with_head_sizes(sizes, p, [&]<int kQk, int kValue, bool kExtra>() {
    if constexpr (!hopper_pairs({kQk, kValue})) {
      using Sizes = HopperDkv<kQk, kValue, kExtra>;
      p.packing = HeadPacking(p.group, Sizes::kRows);
      launch(hopper_dkv<T, kQk, kValue, kExtra>, Sizes::kBytes, blocks, tiles * p.kv_heads, stream,
             describe_queries<T>(p, Sizes::kRows), describe_dout<T>(p, Sizes::kRows),
             describe_keys<T>(p, Sizes::kKeys), describe_values<T>(p, Sizes::kKeys),
             describe_stats(p, Sizes::kStatRows), p, static_cast<int>(tiles));
    }
  });
}

#define INSTANTIATE(T)                                                              \
  template void launch_hopper_dq<T>(HeadSizes, TiledProblem, int, int64_t, Stream); \
  template void launch_hopper_dkv<T>(HeadSizes, TiledProblem, int, int64_t, Stream);
INSTANTIATE(Bf16)
INSTANTIATE(F16)
#undef INSTANTIATE

}  // namespace quintet::kernels::cuda
