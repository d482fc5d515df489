#include <algorithm>

#include "kernels/cuda/attention/hopper_maps.h"
#include "kernels/cuda/attention/hopper_pair.cuh"
#include "kernels/cuda/attention/launch_hopper.h"
#include "kernels/cuda/attention/launch_tiled.h"

namespace quintet::kernels::cuda {

template <class T>
void launch_hopper_pair(HeadSizes sizes, TiledProblem p, int blocks, int64_t tiles, Stream stream) {
  with_head_sizes(sizes, p, [&]<int kQk, int kValue, bool kExtra>() {
    if constexpr (hopper_pairs({kQk, kValue})) {
      using Sizes = HopperPair<kQk, kValue>;
      p.packing = HeadPacking(p.group, Sizes::kRows);
      const auto kernel = hopper_pair<T, kQk, kValue, kExtra>;
      check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Sizes::kBytes),
            "attention_backward");
      kernel<<<static_cast<unsigned>(std::min<int64_t>(blocks, tiles * p.kv_heads)), kBackwardThreads,
               Sizes::kBytes, stream>>>(describe_queries<T>(p, Sizes::kRows),
                                        describe_dout<T>(p, Sizes::kRows), describe_keys<T>(p, Sizes::kKeys),
                                        describe_values<T>(p, Sizes::kKeys),
                                        describe_stats(p, Sizes::kStatRows), p, static_cast<int>(tiles));
      check_launch("attention_backward");
    }
  });
}
template void launch_hopper_pair<Bf16>(HeadSizes, TiledProblem, int, int64_t, Stream);
template void launch_hopper_pair<F16>(HeadSizes, TiledProblem, int, int64_t, Stream);

}  // namespace quintet::kernels::cuda
