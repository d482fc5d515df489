#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "highway/kernels.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h, as Highway requires.
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <cmath>

#include "highway/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace highway_bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// n is a multiple of the vector's lanes here: tails are not what is compared.
void AdamWUpdate(float* p, float* m, float* v, const float* g, int64_t n, const AdamW& k) {
  const D d;
  const auto keep = hn::Set(d, k.keep), rate = hn::Set(d, k.rate), root = hn::Set(d, k.root),
             clip = hn::Set(d, k.clip), b1 = hn::Set(d, k.beta1), b2 = hn::Set(d, k.beta2),
             c1 = hn::Set(d, k.rest1), c2 = hn::Set(d, k.rest2), eps = hn::Set(d, k.eps);
  for (int64_t i = 0; i < n; i += static_cast<int64_t>(hn::Lanes(d))) {
    const V grad = hn::Mul(hn::LoadU(d, g + i), clip);
    const V mean = hn::MulAdd(c1, grad, hn::Mul(b1, hn::LoadU(d, m + i)));
    const V square = hn::MulAdd(hn::Mul(c2, grad), grad, hn::Mul(b2, hn::LoadU(d, v + i)));
    const V move = hn::Div(hn::Mul(rate, mean), hn::MulAdd(hn::Sqrt(square), root, eps));
    const V next = hn::Sub(hn::Mul(hn::LoadU(d, p + i), keep), move);
    hn::StoreU(mean, d, m + i);
    hn::StoreU(square, d, v + i);
    hn::StoreU(next, d, p + i);
  }
}

void RmsNorm(const float* x, const float* w, float* y, float* rstd, int64_t rows, int64_t n, float eps) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = 0; r < rows; ++r) {
    const float* const xr = x + r * n;
    V s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    int64_t i = 0;
    for (; i + 4 * lanes <= n; i += 4 * lanes) {
      const V a = hn::LoadU(d, xr + i), b = hn::LoadU(d, xr + i + lanes),
              c = hn::LoadU(d, xr + i + 2 * lanes), e = hn::LoadU(d, xr + i + 3 * lanes);
      s0 = hn::MulAdd(a, a, s0), s1 = hn::MulAdd(b, b, s1), s2 = hn::MulAdd(c, c, s2),
      s3 = hn::MulAdd(e, e, s3);
    }
    for (; i < n; i += lanes) {
      const V a = hn::LoadU(d, xr + i);
      s0 = hn::MulAdd(a, a, s0);
    }
    const float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
    rstd[r] = 1 / std::sqrt(sum / static_cast<float>(n) + eps);
    const V scale = hn::Set(d, rstd[r]);
    for (int64_t j = 0; j < n; j += lanes)
      hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, xr + j), scale), hn::LoadU(d, w + j)), d, y + r * n + j);
  }
}

void SwiGlu(const float* gate, const float* up, float* y, int64_t n) {
  const D d;
  const V one = hn::Set(d, 1.0f);
  for (int64_t i = 0; i < n; i += static_cast<int64_t>(hn::Lanes(d))) {
    const V x = hn::LoadU(d, gate + i);
    const V silu = hn::Div(x, hn::Add(one, hn::Exp(d, hn::Neg(x))));
    hn::StoreU(hn::Mul(silu, hn::LoadU(d, up + i)), d, y + i);
  }
}

HWY_INLINE void Tile(int64_t k, const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, float* c,
                     int64_t ldc) {
  constexpr int kRows = 14;
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V s0[kRows], s1[kRows];
  for (int r = 0; r < kRows; ++r)
    s0[r] = hn::LoadU(d, c + r * ldc), s1[r] = hn::LoadU(d, c + r * ldc + lanes);
  for (int64_t p = 0; p < k; ++p) {
    const V b0 = hn::LoadU(d, b + p * 2 * lanes), b1 = hn::LoadU(d, b + p * 2 * lanes + lanes);
    HWY_UNROLL(14)
    for (int r = 0; r < kRows; ++r) {
      const V left = hn::Set(d, a[p * kRows + r]);
      s0[r] = hn::MulAdd(left, b0, s0[r]);
      s1[r] = hn::MulAdd(left, b1, s1[r]);
    }
  }
  for (int r = 0; r < kRows; ++r)
    hn::StoreU(s0[r], d, c + r * ldc), hn::StoreU(s1[r], d, c + r * ldc + lanes);
}
void Tile14(int64_t k, const float* a, const float* b, float* c, int64_t ldc) { Tile(k, a, b, c, ldc); }

const char* Target() { return hwy::TargetName(HWY_TARGET); }

}  // namespace highway_bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace highway_bench {
HWY_EXPORT(AdamWUpdate);
HWY_EXPORT(RmsNorm);
HWY_EXPORT(SwiGlu);
HWY_EXPORT(Tile14);
HWY_EXPORT(Target);

void adamw(float* p, float* m, float* v, const float* g, int64_t n, const AdamW& k) {
  HWY_DYNAMIC_DISPATCH(AdamWUpdate)(p, m, v, g, n, k);
}
void rmsnorm(const float* x, const float* w, float* y, float* rstd, int64_t rows, int64_t n, float eps) {
  HWY_DYNAMIC_DISPATCH(RmsNorm)(x, w, y, rstd, rows, n, eps);
}
void swiglu(const float* gate, const float* up, float* y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(SwiGlu)(gate, up, y, n);
}
void tile14(int64_t k, const float* a, const float* b, float* c, int64_t ldc) {
  HWY_DYNAMIC_DISPATCH(Tile14)(k, a, b, c, ldc);
}
const char* target() { return HWY_DYNAMIC_DISPATCH(Target)(); }
}  // namespace highway_bench
#endif
