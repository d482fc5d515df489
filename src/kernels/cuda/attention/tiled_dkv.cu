#include "kernels/cuda/attention/launch_tiled.h"
#include "kernels/cuda/attention/tiled_backward.cuh"

namespace quintet::kernels::cuda {

template <class T>
void launch_tiled_dkv(HeadSizes sizes, const TiledProblem& problem, int64_t tiles, Stream stream) {
  with_head_sizes(sizes, problem, [&]<int kQk, int kValue, bool kExtra>() {
    using Tiles = DkvTiles<kQk, kValue>;
    const auto run = [&](auto kernel) {
      allow_all_shared(kernel, "attention_backward");
      kernel<<<static_cast<unsigned>(tiles * problem.kv_heads), kTiledThreads, Tiles::kBytes, stream>>>(
          problem);
      check_launch("attention_backward");
    };
    if constexpr (Tiles::kSplit) {
      run(tiled_dkv<T, kQk, kValue, kExtra, true, false>);
      run(tiled_dkv<T, kQk, kValue, kExtra, false, true>);
    } else {
      run(tiled_dkv<T, kQk, kValue, kExtra, true, true>);
    }
  });
}
template void launch_tiled_dkv<Bf16>(HeadSizes, const TiledProblem&, int64_t, Stream);
template void launch_tiled_dkv<F16>(HeadSizes, const TiledProblem&, int64_t, Stream);

}  // namespace quintet::kernels::cuda
