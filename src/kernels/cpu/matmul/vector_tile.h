// The register tile of all vector units with multiply-add: MR rows of sums, NV vectors wide.
//
// `Unit` provides: Vector, Element (of A and B, one k group of one row), Sum (element of C), kLanes, and
// zero, load, load_sum, store_sum, broadcast, multiply_add, add. Internal linkage, as generic.h.
#pragma once

#include <cstdint>

namespace quintet::kernels {
namespace {

template <class Unit, int MR, int NV>
void vector_tile(int64_t groups, const typename Unit::Element* a, const typename Unit::Element* b,
                 typename Unit::Sum* c, int64_t ldc, bool add) {
  using Vector = typename Unit::Vector;
  Vector sums[MR][NV];
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i) {
    // C is used only after the loop: by then it is in L1.
    for (int v = 0; v < NV; ++v) __builtin_prefetch(c + i * ldc + v * Unit::kLanes, 1);
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) sums[i][v] = Unit::zero();
  }
  for (int64_t p = 0; p < groups; ++p) {
    Vector columns[NV];
    // B's panel is larger than L1 and A's next rows come from L2: prefetching gains about one percent.
    for (int v = 0; v < NV; ++v) __builtin_prefetch(b + (8 * NV + v) * Unit::kLanes);
    __builtin_prefetch(a + 16 * MR);
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) columns[v] = Unit::load(b + v * Unit::kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i) {
      const Vector row = Unit::broadcast(a + i);
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) sums[i][v] = Unit::multiply_add(row, columns[v], sums[i][v]);
    }
    a += MR;
    b += NV * Unit::kLanes;
  }
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i) {
    typename Unit::Sum* to = c + i * ldc;
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) {
      const Vector sum = sums[i][v];
      Unit::store_sum(to + v * Unit::kLanes,
                      add ? Unit::add(Unit::load_sum(to + v * Unit::kLanes), sum) : sum);
    }
  }
}

}  // namespace
}  // namespace quintet::kernels
