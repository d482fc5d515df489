#include "kernels/cuda/elementwise/each.cuh"
#include "kernels/cuda/optimizer/optimizer.h"

namespace quintet::kernels::cuda {
namespace {

inline constexpr int kThreads = 256, kUnroll = 2;
// Elements of one block, in packs of V: what its threads have under way at once. (Four times as many were 2
// to 5 % slower: a block that goes round has nothing under way when it begins anew.)
template <int V>
inline constexpr int64_t kChunk = int64_t{kThreads * kUnroll * V};

// The ranges of one launch and the blocks that serve them, passed by value so that a captured graph holds
// them.
struct Rates {
  double lr_factor, weight_decay;
};

template <class Place>
struct Ranges {
  static constexpr int kMost = 64, kMostRates = 16;
  int count = 0, num_rates = 0;
  Place place[kMost];  // of the first elements
  int64_t size[kMost];
  unsigned block_end[kMost];
  uint8_t rates_of[kMost];  // index into rates
  Rates rates[kMostRates];  // different ones
};

// Whether packs of four (of doubles: two) begin at p. Null counts as aligned.
template <class T>
bool in_packs(const T* p) {
  return reinterpret_cast<uintptr_t>(p) % (sizeof(T) == 2 ? 8 : 16) == 0;
}

// Where the master lives: as a float or double of its own with an optional rounded copy, or split.
template <class P, class C>
struct PlainMaster {
  using Arithmetic = P;
  P* p;
  C* copy;
  template <int V>
  using Held = Pack<P, V>;
  template <int V>
  __device__ __forceinline__ Held<V> read(int64_t i) const {
    return fetch<V>(p + i);
  }
  template <int V>
  static __device__ __forceinline__ Vals<P, V> value(const Held<V>& h) {
    return values<P, V>(h);
  }
  template <int V>
  __device__ __forceinline__ void write(int64_t i, const Vals<P, V>& next) const {
    store<V>(p + i, next);
    if (copy == nullptr) return;
    Vals<Stat<C>, V> low;
#pragma unroll
    for (int k = 0; k < V; ++k) low.v[k] = static_cast<Stat<C>>(next.v[k]);
    store<V>(copy + i, low);
  }
  bool wide() const { return in_packs(p) && in_packs(copy); }
};

struct SplitMaster {
  using Arithmetic = float;
  Bf16* weight;
  int16_t* remainder;
  template <int V>
  struct Held {
    Pack<Bf16, V> weight, remainder;
  };
  template <int V>
  __device__ __forceinline__ Held<V> read(int64_t i) const {
    return {fetch<V>(weight + i), fetch<V>(reinterpret_cast<const Bf16*>(remainder) + i)};
  }
  template <int V>
  static __device__ __forceinline__ Vals<float, V> value(const Held<V>& h) {
    auto high = values<Bf16, V>(h.weight);
    const auto low = values<Bf16, V>(h.remainder);  // the remainder's bits in the upper half
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const int add = __float_as_int(low.v[k]) >> 16;
      high.v[k] = __int_as_float(__float_as_int(high.v[k]) + add);
    }
    return high;
  }
  template <int V>
  __device__ __forceinline__ void write(int64_t i, const Vals<float, V>& next) const {
    uint32_t high[V], low[V];
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const uint32_t bits = __float_as_uint(next.v[k]);
      // Infinity and NaN would carry into another number; they are cut instead, and stay what they are.
      const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
      high[k] = (finite ? bits + 0x8000u : bits | (bits << 16 != 0 ? 0x400000u : 0u)) >> 16;
      low[k] = finite ? (bits - (high[k] << 16)) & 0xffffu : 0u;
    }
    Pack<Bf16, V> w, r;
    if constexpr (V == 1) {
      w.raw = static_cast<uint16_t>(high[0]);
      r.raw = static_cast<uint16_t>(low[0]);
    } else {
      Words<V / 2> a, b;
#pragma unroll
      for (int k = 0; k < V / 2; ++k) {
        a.w[k] = high[2 * k] | high[2 * k + 1] << 16;
        b.w[k] = low[2 * k] | low[2 * k + 1] << 16;
      }
      w.raw = raw_of(a);
      r.raw = raw_of(b);
    }
    put<V>(weight + i, w);
    put<V>(reinterpret_cast<Bf16*>(remainder) + i, r);
  }
  bool wide() const { return in_packs(weight) && in_packs(remainder); }
};

template <class P, class V, class G, class C>
PlainMaster<P, C> master_of(const UpdateRange<P, V, G, C>& r) {
  return {r.master, r.copy};
}
template <class V, class G>
SplitMaster master_of(const SplitUpdateRange<V, G>& r) {
  return {r.weight, r.remainder};
}
// Masters that are only read.
template <class P>
PlainMaster<P, P> master_of(const EmaRange<P>& r) {
  return {const_cast<P*>(r.weight), nullptr};
}
SplitMaster master_of(const SplitEmaRange& r) {
  return {const_cast<Bf16*>(r.weight), const_cast<int16_t*>(r.remainder)};
}

__device__ double power(double base, double exponent) {
  double result = 1;
  for (auto e = static_cast<uint64_t>(exponent); e > 0; e /= 2) {
    if (e % 2 == 1) result *= base;
    base *= base;
  }
  return result;
}

template <class P>
struct Factors {
  P keep, rate, root, clip;
  bool ok;
  P decay = 0;  // Adam: of the gradient's term
};

template <class Master, class Moment, class Gradient>
struct AdamW {
  using P = typename Master::Arithmetic;
  struct Place {
    Master master;
    Moment *m, *v;
    const Gradient* grad;
    static Place of(const auto& range) {
      return {master_of(range), range.moment1, range.moment2, range.gradient};
    }
    bool wide() const { return master.wide() && in_packs(m) && in_packs(v) && in_packs(grad); }
  };
  AdamWScalars k;
  template <int V>
  struct Loaded {
    typename Master::template Held<V> p;
    Pack<Moment, V> m, v;
    Pack<Gradient, V> g;
  };
  __device__ Factors<P> factors(const Rates& r) const {
    const double lr = *k.lr * r.lr_factor;
    const double correct1 = 1.0 - power(k.beta1, *k.step), correct2 = 1.0 - power(k.beta2, *k.step);
    return {P(!k.coupled ? 1.0 - lr * r.weight_decay : 1.0),
            P(lr / correct1),
            P(1.0 / sqrt(correct2)),
            P(k.clip_scale != nullptr ? *k.clip_scale : 1.0),
            k.ok == nullptr || *k.ok != 0,
            P(r.weight_decay)};
  }
  template <int V>
  __device__ __forceinline__ Loaded<V> load(const Place& at, int64_t i) const {
    return {at.master.template read<V>(i), fetch<V>(at.m + i), fetch<V>(at.v + i), fetch<V>(at.grad + i)};
  }
  template <int V>
  __device__ __forceinline__ void apply(const Place& at, int64_t i, const Loaded<V>& in,
                                        const Factors<P>& f) const {
    auto p = Master::template value<V>(in.p);
    auto mean = values<Moment, V>(in.m), square = values<Moment, V>(in.v);
    const auto gradient = values<Gradient, V>(in.g);
    const P b1 = P(k.beta1), b2 = P(k.beta2), c1 = P(1.0 - k.beta1), c2 = P(1.0 - k.beta2), eps = P(k.eps);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      P g = P(gradient.v[j]) * f.clip;
      if (k.coupled) g = fma(f.decay, p.v[j], g);
      const P next_mean = fma(c1, g, b1 * P(mean.v[j]));
      const P next_square = fma(c2 * g, g, b2 * P(square.v[j]));
      // Every product and sum of an element that can be one rounding or two says which: compilers choose by
      // its place in a pack, and by what is stored.
      p.v[j] = fma(p.v[j], f.keep, -(f.rate * next_mean / fma(sqrt(next_square), f.root, eps)));
      mean.v[j] = next_mean;
      square.v[j] = next_square;
    }
    store<V>(at.m + i, mean);
    store<V>(at.v + i, square);
    at.master.template write<V>(i, p);
  }
};

template <class Master, class Moment, class Gradient>
struct Sgd {
  using P = typename Master::Arithmetic;
  struct Place {
    Master master;
    Moment* velocity;
    const Gradient* grad;
    static Place of(const auto& range) { return {master_of(range), range.moment1, range.gradient}; }
    bool wide() const { return master.wide() && in_packs(velocity) && in_packs(grad); }
  };
  SgdScalars k;
  template <int V>
  struct Loaded {
    typename Master::template Held<V> p;
    Pack<Moment, V> u;
    Pack<Gradient, V> g;
  };
  __device__ Factors<P> factors(const Rates& r) const {
    const double lr = *k.lr * r.lr_factor;
    return {P(1.0 - lr * r.weight_decay), P(lr), P(0), P(k.clip_scale != nullptr ? *k.clip_scale : 1.0),
            k.ok == nullptr || *k.ok != 0};
  }
  template <int V>
  __device__ __forceinline__ Loaded<V> load(const Place& at, int64_t i) const {
    Loaded<V> out;
    out.p = at.master.template read<V>(i);
    if (at.velocity != nullptr) out.u = fetch<V>(at.velocity + i);
    out.g = fetch<V>(at.grad + i);
    return out;
  }
  template <int V>
  __device__ __forceinline__ void apply(const Place& at, int64_t i, const Loaded<V>& in,
                                        const Factors<P>& f) const {
    auto p = Master::template value<V>(in.p);
    const auto gradient = values<Gradient, V>(in.g);
    Vals<Stat<Moment>, V> u{};
    if (at.velocity != nullptr) u = values<Moment, V>(in.u);
    const P mu = P(k.momentum);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const P g = P(gradient.v[j]) * f.clip;
      P move = g;
      if (at.velocity != nullptr) {
        const P next = fma(mu, P(u.v[j]), g);
        u.v[j] = next;
        move = k.nesterov ? fma(mu, next, g) : next;
      }
      p.v[j] = fma(-f.rate, move, p.v[j] * f.keep);
    }
    if (at.velocity != nullptr) store<V>(at.velocity + i, u);
    at.master.template write<V>(i, p);
  }
};

template <class Master, class Moment, class Gradient>
struct Lion {
  using P = typename Master::Arithmetic;
  struct Place {
    Master master;
    Moment* m;
    const Gradient* grad;
    static Place of(const auto& range) { return {master_of(range), range.moment1, range.gradient}; }
    bool wide() const { return master.wide() && in_packs(m) && in_packs(grad); }
  };
  LionScalars k;
  template <int V>
  struct Loaded {
    typename Master::template Held<V> p;
    Pack<Moment, V> m;
    Pack<Gradient, V> g;
  };
  __device__ Factors<P> factors(const Rates& r) const {
    const double lr = *k.lr * r.lr_factor;
    return {P(1.0 - lr * r.weight_decay), P(lr), P(0), P(k.clip_scale != nullptr ? *k.clip_scale : 1.0),
            k.ok == nullptr || *k.ok != 0};
  }
  template <int V>
  __device__ __forceinline__ Loaded<V> load(const Place& at, int64_t i) const {
    return {at.master.template read<V>(i), fetch<V>(at.m + i), fetch<V>(at.grad + i)};
  }
  template <int V>
  __device__ __forceinline__ void apply(const Place& at, int64_t i, const Loaded<V>& in,
                                        const Factors<P>& f) const {
    auto p = Master::template value<V>(in.p);
    auto mean = values<Moment, V>(in.m);
    const auto gradient = values<Gradient, V>(in.g);
    const P b1 = P(k.beta1), b2 = P(k.beta2), c1 = P(1.0 - k.beta1), c2 = P(1.0 - k.beta2);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const P g = P(gradient.v[j]) * f.clip;
      const P u = fma(c1, g, b1 * P(mean.v[j]));
      const P sign = u > P(0) ? P(1) : u < P(0) ? P(-1) : P(0);
      mean.v[j] = fma(c2, g, b2 * P(mean.v[j]));
      p.v[j] = fma(-f.rate, sign, p.v[j] * f.keep);
    }
    store<V>(at.m + i, mean);
    at.master.template write<V>(i, p);
  }
};

template <class Master>
struct Ema {
  using P = typename Master::Arithmetic;
  struct Place {
    Master master;
    P* average;
    static Place of(const auto& range) { return {master_of(range), range.average}; }
    bool wide() const { return master.wide() && in_packs(average); }
  };
  EmaScalars k;
  template <int V>
  struct Loaded {
    typename Master::template Held<V> p;
    Pack<P, V> average;
  };
  __device__ Factors<P> factors(const Rates&) const {
    return {P(0), P(1.0 - k.decay), P(0), P(0), k.ok == nullptr || *k.ok != 0};
  }
  template <int V>
  __device__ __forceinline__ Loaded<V> load(const Place& at, int64_t i) const {
    return {at.master.template read<V>(i), fetch<V>(at.average + i)};
  }
  template <int V>
  __device__ __forceinline__ void apply(const Place& at, int64_t i, const Loaded<V>& in,
                                        const Factors<P>& f) const {
    const auto p = Master::template value<V>(in.p);
    auto average = values<P, V>(in.average);
#pragma unroll
    for (int j = 0; j < V; ++j) average.v[j] = fma(f.rate, p.v[j] - average.v[j], average.v[j]);
    store<V>(at.average + i, average);
  }
};

template <int V, class Rule>
__global__ void __launch_bounds__(kThreads)
    update_kernel(Rule rule, const __grid_constant__ Ranges<typename Rule::Place> ranges) {
  await_previous();
  using P = typename Rule::P;
  __shared__ Factors<P> shared;
  const int range = part_of_block(ranges, blockIdx.x);
  const typename Rule::Place place = ranges.place[range];
  const int64_t block = blockIdx.x - (range > 0 ? ranges.block_end[range - 1] : 0);
  const int64_t base = block * kChunk<V>, left = ranges.size[range] - base;
  const int64_t size = left < kChunk<V> ? left : kChunk<V>, packs = size / V;
  typename Rule::template Loaded<V> in[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u)
    if (const int64_t i = threadIdx.x + u * kThreads; i < packs)
      in[u] = rule.template load<V>(place, base + i * V);
  if (threadIdx.x == 0)
    shared = rule.factors(ranges.rates[ranges.rates_of[range]]);  // while loads are under way
  __syncthreads();
  const Factors<P> factors = shared;
  if (!factors.ok) return;
#pragma unroll
  for (int u = 0; u < kUnroll; ++u)
    if (const int64_t i = threadIdx.x + u * kThreads; i < packs)
      rule.template apply<V>(place, base + i * V, in[u], factors);
  const int64_t tail = packs * V + threadIdx.x;
  if (V > 1 && tail < size) {
    const auto one = rule.template load<1>(place, base + tail);
    rule.template apply<1>(place, base + tail, one, factors);
  }
}

// Ranges of which packs begin at all addresses, and the others, go to separate launches.
template <class Rule, class Range>
void update(const Rule& rule, std::span<const Range> all, Stream stream, const char* what) {
  constexpr int V = sizeof(typename Rule::P) == 8 ? 2 : 4;
  using Launch = Ranges<typename Rule::Place>;
  static_assert(sizeof(Launch) + sizeof(Rule) <= 4096, "parameters of a kernel");
  for (const bool wide : {true, false}) {
    Launch ranges;
    const auto launch = [&] {
      if (ranges.count == 0) return;
      const unsigned blocks = ranges.block_end[ranges.count - 1];
      if (wide)
        update_kernel<V><<<blocks, kThreads, 0, stream>>>(rule, ranges);
      else
        update_kernel<1><<<blocks, kThreads, 0, stream>>>(rule, ranges);
      check_launch(what);
      ranges.count = ranges.num_rates = 0;
    };
    const auto find_rates = [&](const Range& r) {
      int i = 0;
      while (i < ranges.num_rates &&
             (ranges.rates[i].lr_factor != r.lr_factor || ranges.rates[i].weight_decay != r.weight_decay))
        ++i;
      return i;
    };
    for (const Range& r : all) {
      const auto place = Rule::Place::of(r);
      if (r.count <= 0 || place.wide() != wide) continue;
      if (ranges.count == Launch::kMost || find_rates(r) == Launch::kMostRates) launch();
      const int i = ranges.count++, rates = find_rates(r);
      if (rates == ranges.num_rates) ranges.rates[ranges.num_rates++] = {r.lr_factor, r.weight_decay};
      ranges.place[i] = place;
      ranges.size[i] = r.count;
      ranges.rates_of[i] = static_cast<uint8_t>(rates);
      ranges.block_end[i] = (i > 0 ? ranges.block_end[i - 1] : 0) +
                            static_cast<unsigned>(divide_up(r.count, wide ? kChunk<V> : kChunk<1>));
    }
    launch();
  }
}

struct Split {
  const float* from;
  SplitMaster to;
  template <int V>
  __device__ Pack<float, V> load(int64_t i) const {
    return fetch<V>(from + i);
  }
  template <int V>
  __device__ void store(int64_t i, Pack<float, V> x) const {
    to.write<V>(i, values<float, V>(x));
  }
};

}  // namespace

template <class Master, class Moment, class Gradient, class Copy>
void adamw(std::span<const UpdateRange<Master, Moment, Gradient, Copy>> ranges, const AdamWScalars& scalars,
           Stream stream) {
  update(AdamW<PlainMaster<Master, Copy>, Moment, Gradient>{scalars}, ranges, stream, "adamw");
}

template <class Moment, class Gradient>
void adamw(std::span<const SplitUpdateRange<Moment, Gradient>> ranges, const AdamWScalars& scalars,
           Stream stream) {
  update(AdamW<SplitMaster, Moment, Gradient>{scalars}, ranges, stream, "adamw");
}

void split_master(const float* master, Bf16* weight, int16_t* remainder, int64_t n, Stream stream) {
  const SplitMaster to{weight, remainder};
  each<4, 2>(Split{master, to}, n, aligned16(master) && to.wide(), stream, "split_master");
}

template <class Master, class Moment, class Gradient, class Copy>
void sgd(std::span<const UpdateRange<Master, Moment, Gradient, Copy>> ranges, const SgdScalars& scalars,
         Stream stream) {
  update(Sgd<PlainMaster<Master, Copy>, Moment, Gradient>{scalars}, ranges, stream, "sgd");
}

template <class Moment, class Gradient>
void sgd(std::span<const SplitUpdateRange<Moment, Gradient>> ranges, const SgdScalars& scalars,
         Stream stream) {
  update(Sgd<SplitMaster, Moment, Gradient>{scalars}, ranges, stream, "sgd");
}

template <class Master, class Moment, class Gradient, class Copy>
void lion(std::span<const UpdateRange<Master, Moment, Gradient, Copy>> ranges, const LionScalars& scalars,
          Stream stream) {
  update(Lion<PlainMaster<Master, Copy>, Moment, Gradient>{scalars}, ranges, stream, "lion");
}

template <class Moment, class Gradient>
void lion(std::span<const SplitUpdateRange<Moment, Gradient>> ranges, const LionScalars& scalars,
          Stream stream) {
  update(Lion<SplitMaster, Moment, Gradient>{scalars}, ranges, stream, "lion");
}

template <class Master>
void ema(std::span<const EmaRange<Master>> ranges, const EmaScalars& scalars, Stream stream) {
  update(Ema<PlainMaster<Master, Master>>{scalars}, ranges, stream, "ema");
}
template void ema(std::span<const EmaRange<float>>, const EmaScalars&, Stream);
template void ema(std::span<const EmaRange<double>>, const EmaScalars&, Stream);
void ema(std::span<const SplitEmaRange> ranges, const EmaScalars& scalars, Stream stream) {
  update(Ema<SplitMaster>{scalars}, ranges, stream, "ema");
}

#define INSTANTIATE(M, V, G, C)                                                               \
  template void adamw(std::span<const UpdateRange<M, V, G, C>>, const AdamWScalars&, Stream); \
  template void sgd(std::span<const UpdateRange<M, V, G, C>>, const SgdScalars&, Stream);     \
  template void lion(std::span<const UpdateRange<M, V, G, C>>, const LionScalars&, Stream);
INSTANTIATE(double, double, double, double)
INSTANTIATE(double, double, double, float)
INSTANTIATE(double, double, double, Bf16)
INSTANTIATE(float, float, float, float)
INSTANTIATE(float, float, float, Bf16)
INSTANTIATE(float, float, float, F16)
INSTANTIATE(float, float, Bf16, Bf16)
INSTANTIATE(float, Bf16, float, float)
INSTANTIATE(float, Bf16, float, Bf16)
INSTANTIATE(float, Bf16, float, F16)
INSTANTIATE(float, Bf16, Bf16, Bf16)
#undef INSTANTIATE
#define INSTANTIATE(V, G)                                                                    \
  template void adamw(std::span<const SplitUpdateRange<V, G>>, const AdamWScalars&, Stream); \
  template void sgd(std::span<const SplitUpdateRange<V, G>>, const SgdScalars&, Stream);     \
  template void lion(std::span<const SplitUpdateRange<V, G>>, const LionScalars&, Stream);
INSTANTIATE(float, float)
INSTANTIATE(float, Bf16)
INSTANTIATE(Bf16, float)
INSTANTIATE(Bf16, Bf16)
#undef INSTANTIATE

}  // namespace quintet::kernels::cuda
