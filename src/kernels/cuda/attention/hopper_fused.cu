#include <algorithm>

#include "kernels/cuda/attention/hopper_fused.cuh"
#include "kernels/cuda/attention/hopper_maps.h"
#include "kernels/cuda/attention/launch_hopper.h"

namespace quintet::kernels::cuda {

template <class T>
void launch_hopper_fused(HeadSizes sizes, TiledProblem p, int blocks, int64_t key_tiles, int64_t kv_heads,
                         Stream stream) {
  const auto run = [&]<int kWidth>() {
    using Sizes = HopperFused<kWidth>;
    p.packing = HeadPacking(p.group, Sizes::kRows);
    const CUtensorMap q = describe_queries<T>(p, Sizes::kRows), dout = describe_dout<T>(p, Sizes::kRows),
                      k = describe_keys<T>(p, Sizes::kKeys), v = describe_values<T>(p, Sizes::kKeys),
                      stats = describe_stats(p, Sizes::kStatRows);
    const auto kernel = hopper_fused<T, kWidth>;
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Sizes::kBytes),
          "attention_backward");
    const auto row_tiles =
        static_cast<unsigned>(tile_count(p.q_rows.length, p.q_rows.runs, p.q_rows.sequences, kRowTokens));
    for (p.kv_begin = 0; p.kv_begin < p.kv_heads; p.kv_begin += p.kv_span) {
      p.kv_span = static_cast<int>(std::min<int64_t>(kv_heads, p.kv_heads - p.kv_begin));
      begin_rows<T, Sizes::kQkPanels><<<row_tiles, kRowThreads, 0, stream>>>(p);
      check_launch("attention_backward");
      kernel<<<static_cast<unsigned>(std::min<int64_t>(blocks, key_tiles * p.kv_span)), kBackwardThreads,
               Sizes::kBytes, stream>>>(q, dout, k, v, stats, p, static_cast<int>(key_tiles));
      check_launch("attention_backward");
      finish_dq<T, Sizes::kQkPanels><<<row_tiles, kRowThreads, 0, stream>>>(p);
      check_launch("attention_backward");
    }
  };
  if (sizes.qk == 64)
    run.template operator()<64>();
  else if (sizes.qk == 96)
    run.template operator()<96>();
  else
    run.template operator()<128>();
}
template void launch_hopper_fused<Bf16>(HeadSizes, TiledProblem, int, int64_t, int64_t, Stream);
template void launch_hopper_fused<F16>(HeadSizes, TiledProblem, int, int64_t, int64_t, Stream);

}  // namespace quintet::kernels::cuda
