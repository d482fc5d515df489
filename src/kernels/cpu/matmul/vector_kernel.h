// Tile kernels of vector units: operands of Src, widened to the sums' type while they are packed. Internal
// linkage, as generic.h.
#pragma once

#include "kernels/cpu/matmul/generic.h"
#include "kernels/cpu/matmul/tile.h"
#include "kernels/cpu/matmul/vector_tile.h"

namespace quintet::kernels {
namespace {

template <class Unit, int MR, int NR>
void tile(int64_t k, const void* a, const void* b, void* c, int64_t ldc, bool add) {
  using Element = typename Unit::Element;
  vector_tile<Unit, MR, NR / Unit::kLanes>(k, static_cast<const Element*>(a), static_cast<const Element*>(b),
                                           static_cast<typename Unit::Sum*>(c), ldc, add);
}

template <GemmIsa isa, class Src, class Unit, base::DType type>
constexpr TileKernel vector_kernel(decltype(TileKernel::round) round_to_bf16) {
  constexpr TileShape s = tile_shape(isa, type);
  using Sum = typename Unit::Sum;
  return {s,
          sizeof(Sum) == 8 ? base::DType::F64 : base::DType::F32,
          pack_generic<Src, Sum, s.mr>,
          pack_generic<Src, Sum, s.nr>,
          tile<Unit, s.mr, s.nr>,
          type == base::DType::F16 ? round_to_f16_generic : round_to_bf16,
          nullptr,
          nullptr};
}

}  // namespace
}  // namespace quintet::kernels
