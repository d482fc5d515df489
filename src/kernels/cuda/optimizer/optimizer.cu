#include "kernels/cuda/optimizer/update.cuh"

namespace quintet::kernels::cuda {
namespace {

template <class Master, class Moment, class Gradient, class Rounding>
struct AdamW {
  using P = typename Master::Arithmetic;
  struct Place : Rounding {
    Master master;
    Moment *m, *v;
    const Gradient* grad;
    static Place of(const auto& range) {
      return {Rounding::of(range), master_of(range), range.moment1, range.moment2, range.gradient};
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
  __device__ Factors<P> factors(const Rates& r, const Place&) const {
    const double lr = *k.lr * r.lr_factor;
    const double correct1 = 1.0 - power(k.beta1, *k.step), correct2 = 1.0 - power(k.beta2, *k.step);
    return {P(!k.coupled ? 1.0 - lr * decay_of(k, r.weight_decay) : 1.0),
            P(lr / correct1),
            P(1.0 / sqrt(correct2)),
            P(k.clip_scale != nullptr ? *k.clip_scale : 1.0),
            k.ok == nullptr || *k.ok != 0,
            P(decay_of(k, r.weight_decay))};
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
      // Each multiply-add says explicitly whether it is fused: left alone, the compiler decides by the
      // element's position in a vector and by what is stored, and the bits would depend on the layout.
      p.v[j] = fma(p.v[j], f.keep, -(f.rate * next_mean / fma(sqrt(next_square), f.root, eps)));
      mean.v[j] = next_mean;
      square.v[j] = next_square;
    }
    at.round(i, k.step, mean, &square);
    store<V>(at.m + i, mean);
    store<V>(at.v + i, square);
    at.master.template write<V>(i, p);
  }
};

template <class Master, class Moment, class Gradient, class Rounding>
struct Sgd {
  using P = typename Master::Arithmetic;
  struct Place : Rounding {
    Master master;
    Moment* velocity;
    const Gradient* grad;
    static Place of(const auto& range) {
      return {Rounding::of(range), master_of(range), range.moment1, range.gradient};
    }
    bool wide() const { return master.wide() && in_packs(velocity) && in_packs(grad); }
  };
  SgdScalars k;
  template <int V>
  struct Loaded {
    typename Master::template Held<V> p;
    Pack<Moment, V> u;
    Pack<Gradient, V> g;
  };
  __device__ Factors<P> factors(const Rates& r, const Place&) const {
    const double lr = *k.lr * r.lr_factor;
    return {P(1.0 - lr * decay_of(k, r.weight_decay)), P(lr), P(0),
            P(k.clip_scale != nullptr ? *k.clip_scale : 1.0), k.ok == nullptr || *k.ok != 0};
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
    if (at.velocity != nullptr) {
      at.round(i, k.step, u, static_cast<decltype(&u)>(nullptr));
      store<V>(at.velocity + i, u);
    }
    at.master.template write<V>(i, p);
  }
};

template <class Master, class Moment, class Gradient, class Rounding>
struct Lion {
  using P = typename Master::Arithmetic;
  struct Place : Rounding {
    Master master;
    Moment* m;
    const Gradient* grad;
    static Place of(const auto& range) {
      return {Rounding::of(range), master_of(range), range.moment1, range.gradient};
    }
    bool wide() const { return master.wide() && in_packs(m) && in_packs(grad); }
  };
  LionScalars k;
  template <int V>
  struct Loaded {
    typename Master::template Held<V> p;
    Pack<Moment, V> m;
    Pack<Gradient, V> g;
  };
  __device__ Factors<P> factors(const Rates& r, const Place&) const {
    const double lr = *k.lr * r.lr_factor;
    return {P(1.0 - lr * decay_of(k, r.weight_decay)), P(lr), P(0),
            P(k.clip_scale != nullptr ? *k.clip_scale : 1.0), k.ok == nullptr || *k.ok != 0};
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
    at.round(i, k.step, mean, static_cast<decltype(&mean)>(nullptr));
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
  __device__ Factors<P> factors(const Rates&, const Place&) const {
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
  update_moments<AdamW, PlainMaster<Master, Copy>, Moment, Gradient>(scalars, ranges, stream, "adamw");
}

template <class Moment, class Gradient>
void adamw(std::span<const SplitUpdateRange<Moment, Gradient>> ranges, const AdamWScalars& scalars,
           Stream stream) {
  update_moments<AdamW, SplitMaster, Moment, Gradient>(scalars, ranges, stream, "adamw");
}

void split_master(const float* master, Bf16* weight, int16_t* remainder, int64_t n, Stream stream) {
  const SplitMaster to{weight, remainder};
  each<4, 2>(Split{master, to}, n, aligned16(master) && to.wide(), stream, "split_master");
}

template <class Master, class Moment, class Gradient, class Copy>
void sgd(std::span<const UpdateRange<Master, Moment, Gradient, Copy>> ranges, const SgdScalars& scalars,
         Stream stream) {
  update_moments<Sgd, PlainMaster<Master, Copy>, Moment, Gradient>(scalars, ranges, stream, "sgd");
}

template <class Moment, class Gradient>
void sgd(std::span<const SplitUpdateRange<Moment, Gradient>> ranges, const SgdScalars& scalars,
         Stream stream) {
  update_moments<Sgd, SplitMaster, Moment, Gradient>(scalars, ranges, stream, "sgd");
}

template <class Master, class Moment, class Gradient, class Copy>
void lion(std::span<const UpdateRange<Master, Moment, Gradient, Copy>> ranges, const LionScalars& scalars,
          Stream stream) {
  update_moments<Lion, PlainMaster<Master, Copy>, Moment, Gradient>(scalars, ranges, stream, "lion");
}

template <class Moment, class Gradient>
void lion(std::span<const SplitUpdateRange<Moment, Gradient>> ranges, const LionScalars& scalars,
          Stream stream) {
  update_moments<Lion, SplitMaster, Moment, Gradient>(scalars, ranges, stream, "lion");
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
