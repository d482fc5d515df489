#include <algorithm>

#include "kernels/cuda/attention/hopper_backward.cuh"
#include "kernels/cuda/attention/hopper_maps.h"
#include "kernels/cuda/attention/launch_hopper.h"

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
void launch_hopper_dq(TiledProblem p, int blocks, int64_t tiles, Stream stream) {
  const auto run = [&]<int kWidth>() {
    using Sizes = HopperDq<kWidth>;
    p.packing = HeadPacking(p.group, Sizes::kRows);
    const CUtensorMap q = describe_heads<T>(p.q, p.q_count, p.heads, kWidth, p.q_stride, p.group,
                                            p.packing.tokens),
                      dout = describe_heads<T>(p.dout, p.q_count, p.heads, kWidth, p.o_stride, p.group,
                                               p.packing.tokens),
                      k = describe_heads<T>(p.k, p.k_count, p.kv_heads, kWidth, p.k_stride, 1, Sizes::kKeys),
                      v = describe_heads<T>(p.v, p.k_count, p.kv_heads, kWidth, p.v_stride, 1, Sizes::kKeys);
    launch(hopper_dq<T, kWidth>, Sizes::kBytes, blocks, tiles * p.kv_heads, stream, q, dout, k, v, p,
           static_cast<int>(tiles));
  };
  if (p.head_dim == 64)
    run.template operator()<64>();
  else
    run.template operator()<128>();
}

template <class T>
void launch_hopper_dkv(TiledProblem p, int blocks, int64_t tiles, Stream stream) {
  const auto run = [&]<int kWidth>() {
    using Sizes = HopperKeys<kWidth>;
    p.packing = HeadPacking(p.group, Sizes::kRows);
    const CUtensorMap q = describe_heads<T>(p.q, p.q_count, p.heads, kWidth, p.q_stride, p.group,
                                            p.packing.tokens),
                      dout = describe_heads<T>(p.dout, p.q_count, p.heads, kWidth, p.o_stride, p.group,
                                               p.packing.tokens),
                      k = describe_heads<T>(p.k, p.k_count, p.kv_heads, kWidth, p.k_stride, 1, Sizes::kKeys),
                      v = describe_heads<T>(p.v, p.k_count, p.kv_heads, kWidth, p.v_stride, 1, Sizes::kKeys);
    const CUtensorMap stats = describe_stats(p, Sizes::kStatRows);
    launch(hopper_dkv<T, kWidth>, Sizes::kBytes, blocks, tiles * p.kv_heads, stream, q, dout, k, v, stats, p,
           static_cast<int>(tiles));
  };
  if (p.head_dim == 64)
    run.template operator()<64>();
  else
    run.template operator()<128>();
}

#define INSTANTIATE(T)                                                   \
  template void launch_hopper_dq<T>(TiledProblem, int, int64_t, Stream); \
  template void launch_hopper_dkv<T>(TiledProblem, int, int64_t, Stream);
INSTANTIATE(Bf16)
INSTANTIATE(F16)
#undef INSTANTIATE

}  // namespace quintet::kernels::cuda
