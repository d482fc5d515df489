// AdamW on 8-bit codes; contract in kernels/cpu/optimizer/optimizer.h. Bound by memory and table lookups: one
// build serves every instruction set.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/split_float.h"
#include "kernels/cpu/optimizer/optimizer.h"
#include "kernels/dynamic_map.h"

namespace quintet::kernels::cpu {
namespace {

template <class P, class Copy>
struct BlockMaster {
  using Arithmetic = P;
  P* p;
  Copy* copy;
  P read(int64_t i) const { return p[i]; }
  void write(int64_t i, P next) const {
    p[i] = next;
    if (copy != nullptr)
      copy[i] = static_cast<Copy>(static_cast<std::conditional_t<sizeof(Copy) == 2, float, Copy>>(next));
  }
};

struct SplitBlockMaster {
  using Arithmetic = float;
  Bf16* weight;
  int16_t* remainder;
  float read(int64_t i) const { return base::join_float(weight[i], remainder[i]); }
  void write(int64_t i, float next) const {
    const base::SplitFloat s = base::split_float(next);
    weight[i] = s.high;
    remainder[i] = s.low;
  }
};

template <class Master, class Gradient>
void adamw8bit_of(const Master& master, const Codes<typename Master::Arithmetic>& c, const Gradient* grad,
                  int64_t n, const AdamWScalars& k, ThreadPool& pool) {
  using P = typename Master::Arithmetic;
  if (k.ok != nullptr && *k.ok == 0) return;
  QUINTET_CHECK(c.block > 0 && c.block <= kMaxBlock, "blocks of {} elements", c.block);
  const double step = static_cast<double>(*k.step);
  const P keep = P(1.0 - *k.lr * k.weight_decay), rate = P(*k.lr / (1.0 - std::pow(k.beta1, step))),
          root = P(1.0 / std::sqrt(1.0 - std::pow(k.beta2, step))),
          clip = P(k.clip_scale != nullptr ? *k.clip_scale : 1.0);
  const P b1 = P(k.beta1), b2 = P(k.beta2), c1 = P(1.0 - k.beta1), c2 = P(1.0 - k.beta2), eps = P(k.eps);
  const int64_t blocks = (n + c.block - 1) / c.block;
  pool.parallel_for(0, blocks, std::max<int64_t>(1, 4096 / c.block), [&](int64_t first, int64_t last, int) {
    P mean[kMaxBlock], square[kMaxBlock];
    for (int64_t b = first; b < last; ++b) {
      const int64_t begin = b * c.block, count = std::min(c.block, n - begin);
      const P m_scale = c.m_scale[b], v_scale = c.v_scale[b];
      P max_m = 0, max_v = 0;
      for (int64_t i = 0; i < count; ++i) {
        const int64_t at = begin + i;
        const P g = static_cast<P>(static_cast<Stat<Gradient>>(grad[at])) * clip;
        mean[i] = c1 * g + b1 * (P(kSignedMap.value[c.m[at]]) * m_scale);
        square[i] = c2 * g * g + b2 * (P(kUnsignedMap.value[c.v[at]]) * v_scale);
        max_m = std::max(max_m, std::abs(mean[i]));
        max_v = std::max(max_v, square[i]);
        master.write(at, master.read(at) * keep - rate * mean[i] / (std::sqrt(square[i]) * root + eps));
      }
      const P per_m = max_m > 0 ? P(1) / max_m : P(0), per_v = max_v > 0 ? P(1) / max_v : P(0);
      for (int64_t i = 0; i < count; ++i) {
        c.m[begin + i] = nearest_code(kSignedMap, std::clamp(mean[i] * per_m, P(-1), P(1)));
        c.v[begin + i] = nearest_code(kUnsignedMap, std::min(square[i] * per_v, P(1)));
      }
      c.m_scale[b] = max_m;
      c.v_scale[b] = max_v;
    }
  });
}

}  // namespace

template <class Master, class Gradient, class Copy>
void adamw8bit(Master* p, const Codes<Master>& codes, const Gradient* grad, Copy* copy, int64_t n,
               const AdamWScalars& scalars, ThreadPool& pool) {
  adamw8bit_of(BlockMaster<Master, Copy>{p, copy}, codes, grad, n, scalars, pool);
}

template <class Gradient>
void adamw8bit_split(Bf16* weight, int16_t* remainder, const Codes<float>& codes, const Gradient* grad,
                     int64_t n, const AdamWScalars& scalars, ThreadPool& pool) {
  adamw8bit_of(SplitBlockMaster{weight, remainder}, codes, grad, n, scalars, pool);
}

#define INSTANTIATE(M, G, C) template decltype(adamw8bit<M, G, C>) adamw8bit<M, G, C>;
INSTANTIATE(double, double, double)
INSTANTIATE(double, double, float)
INSTANTIATE(double, double, Bf16)
INSTANTIATE(float, float, float)
INSTANTIATE(float, float, Bf16)
INSTANTIATE(float, float, F16)
INSTANTIATE(float, Bf16, Bf16)
#undef INSTANTIATE
template decltype(adamw8bit_split<float>) adamw8bit_split<float>;
template decltype(adamw8bit_split<Bf16>) adamw8bit_split<Bf16>;

}  // namespace quintet::kernels::cpu
