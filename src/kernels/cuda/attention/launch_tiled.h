// The kernels of tiled_forward.cuh and tiled_backward.cuh by type and head sizes, in separate translation
// units.
#pragma once

#include "kernels/cuda/attention/problem.cuh"

namespace quintet::kernels::cuda {

// `tiles` query tiles, or key tiles for dkv. The problem's packing must be the kernel's.
template <class T>
void launch_tiled_forward(HeadSizes sizes, const TiledProblem& problem, int64_t tiles, Stream stream);
template <class T>
void launch_tiled_dq(HeadSizes sizes, const TiledProblem& problem, int64_t tiles, Stream stream);
template <class T>
void launch_tiled_dkv(HeadSizes sizes, const TiledProblem& problem, int64_t tiles, Stream stream);

// Calls launch with the sizes as constants, and whether the problem has a soft cap or dropout.
template <class Launch>
void with_head_sizes(HeadSizes d, const TiledProblem& p, const Launch& launch) {
  const auto both = [&]<int kQk, int kValue>() {
    if (p.extra())
      launch.template operator()<kQk, kValue, true>();
    else
      launch.template operator()<kQk, kValue, false>();
  };
  switch (d.qk) {
    case 64:
      return both.template operator()<64, 64>();
    case 96:
      return both.template operator()<96, 96>();
    case 128:
      return both.template operator()<128, 128>();
    case 192:
      return both.template operator()<192, 128>();
    case 256:
      return both.template operator()<256, 256>();
    default:
      fail("attention: no kernel for heads of " + std::to_string(d.qk));
  }
}

}  // namespace quintet::kernels::cuda
