// How the threads of a norm kernel share a row: a group of threads, each with K packs of 16 bytes in
// registers.
#pragma once

#include <utility>

#include "kernels/cuda/pack.cuh"

namespace quintet::kernels::cuda {

// kGroup is 8 or 32 lanes of a warp, or 0: the whole block, of at most kThreads.
template <int kGroupOf, int kPacksOf, int kThreadsOf>
struct NormShape {
  static constexpr int kGroup = kGroupOf, kPacks = kPacksOf, kThreads = kThreadsOf;
  static constexpr int kRows = kGroup > 0 ? kThreads / kGroup : 1;  // of a block at a time
  static int threads(int64_t packs) {
    if (kGroup > 0) return kThreads;
    return static_cast<int>((packs + 32 * kPacks - 1) / (32 * kPacks) * 32);
  }
  static bool fits(int64_t packs) { return packs <= (kGroup > 0 ? kGroup : kThreads) * int64_t{kPacks}; }
};

template <class... Shapes>
struct NormShapes {};

// Calls f(shape) with the first shape that a row fits, which come smallest first; false when there is none.
template <class F, class... Shapes>
bool with_norm_shape(NormShapes<Shapes...>, int64_t packs, F&& f) {
  return ((Shapes::fits(packs) && (f(Shapes{}), true)) || ...);
}

// Serves rows that no shape fits, that are not aligned, and doubles: one block a row, one element at a time,
// the row read again for each use.
inline constexpr int kNormAnyThreads = 256;

}  // namespace quintet::kernels::cuda
