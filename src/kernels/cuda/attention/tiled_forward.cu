#include "kernels/cuda/attention/launch_tiled.h"
#include "kernels/cuda/attention/tiled_forward.cuh"

namespace quintet::kernels::cuda {

template <class T>
void launch_tiled_forward(HeadSizes sizes, const TiledProblem& problem, int64_t tiles, Stream stream) {
  with_head_sizes(sizes, problem, [&]<int kQk, int kValue, bool kExtra>() {
    const auto kernel = tiled_forward<T, kQk, kValue, kExtra>;
    allow_all_shared(kernel, "attention");
    kernel<<<static_cast<unsigned>(tiles * problem.kv_heads * problem.packing.parts), kTiledThreads,
             ForwardTiles<kQk, kValue>::kBytes, stream>>>(problem);
    check_launch("attention");
  });
}
template void launch_tiled_forward<Bf16>(HeadSizes, const TiledProblem&, int64_t, Stream);
template void launch_tiled_forward<F16>(HeadSizes, const TiledProblem&, int64_t, Stream);

}  // namespace quintet::kernels::cuda
