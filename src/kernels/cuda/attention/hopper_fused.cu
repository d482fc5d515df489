#include <algorithm>

#include "kernels/cuda/attention/hopper_fused.cuh"
#include "kernels/cuda/attention/hopper_maps.h"
#include "kernels/cuda/attention/launch_hopper.h"

namespace quintet::kernels::cuda {

template <class T>
void launch_hopper_fused(TiledProblem p, int blocks, int64_t key_tiles, int64_t kv_heads, Stream stream) {
  const auto run = [&]<int kWidth>() {
    using Sizes = HopperFused<kWidth>;
    p.packing = HeadPacking(p.group, Sizes::kRows);
    const CUtensorMap q = describe_heads<T>(p.q, p.q_count, p.heads, kWidth, p.q_stride, p.group,
                                            p.packing.tokens),
                      dout = describe_heads<T>(p.dout, p.q_count, p.heads, kWidth, p.o_stride, p.group,
                                               p.packing.tokens),
                      k = describe_heads<T>(p.k, p.k_count, p.kv_heads, kWidth, p.k_stride, 1, Sizes::kKeys),
                      v = describe_heads<T>(p.v, p.k_count, p.kv_heads, kWidth, p.v_stride, 1, Sizes::kKeys),
                      stats = describe_stats(p, Sizes::kStatRows);
    const auto kernel = hopper_fused<T, kWidth>;
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Sizes::kBytes),
          "attention_backward");
    const auto row_tiles =
        static_cast<unsigned>(tile_count(p.q_rows.length, p.q_rows.runs, p.q_rows.sequences, kRowTokens));
    for (p.kv_begin = 0; p.kv_begin < p.kv_heads; p.kv_begin += p.kv_span) {
      p.kv_span = static_cast<int>(std::min<int64_t>(kv_heads, p.kv_heads - p.kv_begin));
      begin_rows<T, kWidth><<<row_tiles, kRowThreads, 0, stream>>>(p);
      check_launch("attention_backward");
      kernel<<<static_cast<unsigned>(std::min<int64_t>(blocks, key_tiles * p.kv_span)), kBackwardThreads,
               Sizes::kBytes, stream>>>(q, dout, k, v, stats, p, static_cast<int>(key_tiles));
      check_launch("attention_backward");
      finish_dq<T, kWidth><<<row_tiles, kRowThreads, 0, stream>>>(p);
      check_launch("attention_backward");
    }
  };
  if (p.head_dim == 64)
    run.template operator()<64>();
  else
    run.template operator()<128>();
}
template void launch_hopper_fused<Bf16>(TiledProblem, int, int64_t, int64_t, Stream);
template void launch_hopper_fused<F16>(TiledProblem, int, int64_t, int64_t, Stream);

}  // namespace quintet::kernels::cuda
