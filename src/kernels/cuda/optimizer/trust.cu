// LAMB and LARS: updates scaled by a trust ratio per parameter, and the norms from which it is computed.
#include "kernels/cuda/optimizer/update.cuh"
#include "kernels/cuda/support/thread_group.cuh"
#include "kernels/cuda_scratch/sizes.h"

namespace quintet::kernels::cuda {
namespace {

template <class T>
__device__ __forceinline__ double element(const T* p) {
  return static_cast<double>(values<T, 1>(fetch<1>(p)).v[0]);
}

template <class Master, class Moment, class Gradient, class Rounding>
struct Lamb {
  using P = typename Master::Arithmetic;
  struct Place : Rounding {
    Master master;
    Moment *m, *v;
    const Gradient* grad;
    const double* norms;
    static Place of(const auto& range) {
      return {Rounding::of(range), master_of(range), range.moment1,
              range.moment2,       range.gradient,   range.norms};
    }
    bool wide() const { return master.wide() && in_packs(m) && in_packs(v) && in_packs(grad); }
  };
  LambScalars k;
  template <int V>
  struct Loaded {
    typename Master::template Held<V> p;
    Pack<Moment, V> m, v;
    Pack<Gradient, V> g;
  };
  // `keep` is the bias-correction factor of the mean.
  __device__ Factors<P> factors(const Rates& r, const Place& at) const {
    const double ratio = lamb_ratio(at.norms, k.limits);
    const Factors<double> f = wide_factors(decay_of(k, r.weight_decay));
    return {P(f.keep), P(*k.lr * r.lr_factor * ratio), P(f.root),
            P(f.clip), k.ok == nullptr || *k.ok != 0,  P(f.decay)};
  }
  __device__ Factors<double> wide_factors(double weight_decay) const {
    return {1.0 / (1.0 - power(k.beta1, *k.step)),         0.0,  1.0 / sqrt(1.0 - power(k.beta2, *k.step)),
            k.clip_scale != nullptr ? *k.clip_scale : 1.0, true, weight_decay};
  }
  // Returns the update before the learning rate; advances mean and square.
  template <class S>
  __device__ __forceinline__ S direction(S p, S& mean, S& square, S g, const Factors<S>& f) const {
    mean = fma(S(1.0 - k.beta1), g, S(k.beta1) * mean);
    square = fma(S(1.0 - k.beta2) * g, g, S(k.beta2) * square);
    return fma(f.decay, p, f.keep * mean / fma(sqrt(square), f.root, S(k.eps)));
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
#pragma unroll
    for (int j = 0; j < V; ++j) {
      P next_mean = P(mean.v[j]), next_square = P(square.v[j]);
      const P u = direction<P>(p.v[j], next_mean, next_square, P(gradient.v[j]) * f.clip, f);
      p.v[j] = fma(-f.rate, u, p.v[j]);
      mean.v[j] = next_mean;
      square.v[j] = next_square;
    }
    at.round(i, k.step, mean, &square);
    store<V>(at.m + i, mean);
    store<V>(at.v + i, square);
    at.master.template write<V>(i, p);
  }
  __device__ double other(const Place& at, int64_t i, double p, const Factors<double>& f) const {
    double mean = element(at.m + i), square = element(at.v + i);
    return direction<double>(p, mean, square, element(at.grad + i) * f.clip, f);
  }
};

template <class Master, class Moment, class Gradient, class Rounding>
struct Lars {
  using P = typename Master::Arithmetic;
  struct Place : Rounding {
    Master master;
    Moment* velocity;
    const Gradient* grad;
    const double* norms;
    static Place of(const auto& range) {
      return {Rounding::of(range), master_of(range), range.moment1, range.gradient, range.norms};
    }
    bool wide() const { return master.wide() && in_packs(velocity) && in_packs(grad); }
  };
  LarsScalars k;
  template <int V>
  struct Loaded {
    typename Master::template Held<V> p;
    Pack<Moment, V> u;
    Pack<Gradient, V> g;
  };
  __device__ Factors<P> factors(const Rates& r, const Place& at) const {
    const double ratio = lars_ratio(at.norms, k.trust, decay_of(k, r.weight_decay), k.limits);
    return {P(1),
            P(*k.lr * r.lr_factor * ratio),
            P(0),
            P(wide_factors(0).clip),
            k.ok == nullptr || *k.ok != 0,
            P(decay_of(k, r.weight_decay))};
  }
  __device__ Factors<double> wide_factors(double) const {
    return {0.0, 0.0, 0.0, k.clip_scale != nullptr ? *k.clip_scale : 1.0, true, 0.0};
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
      P move = f.rate * fma(f.decay, p.v[j], P(gradient.v[j]) * f.clip);
      if (at.velocity != nullptr) {
        move = fma(mu, P(u.v[j]), move);
        u.v[j] = move;
      }
      p.v[j] = p.v[j] - move;
    }
    if (at.velocity != nullptr) {
      at.round(i, k.step, u, static_cast<decltype(&u)>(nullptr));
      store<V>(at.velocity + i, u);
    }
    at.master.template write<V>(i, p);
  }
  __device__ double other(const Place& at, int64_t i, double, const Factors<double>& f) const {
    return element(at.grad + i) * f.clip;
  }
};

// Sums of squares of a chunk of a parameter and of Rule::other, in partial[2 block] and [2 block + 1].
template <class Rule>
__global__ void __launch_bounds__(kThreads)
    norms_kernel(Rule rule, typename Rule::Place at, int64_t n, double weight_decay, double* partial) {
  await_previous();
  __shared__ double shared[2][32];
  const Factors<double> f = rule.wide_factors(decay_of(rule.k, weight_decay));
  const int64_t begin = blockIdx.x * kReduceChunk, left = n - begin,
                end = begin + (left < kReduceChunk ? left : kReduceChunk);
  double weights = 0, others = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    using Master = decltype(at.master);
    const double p = static_cast<double>(Master::template value<1>(at.master.template read<1>(i)).v[0]);
    const double x = rule.other(at, i, p, f);
    weights = fma(p, p, weights);
    others = fma(x, x, others);
  }
  weights = block_fold(weights, shared[0], Plus{});
  others = block_fold(others, shared[1], Plus{});
  if (threadIdx.x == 0) {
    partial[2 * blockIdx.x] = weights;
    partial[2 * blockIdx.x + 1] = others;
  }
}

__global__ void __launch_bounds__(kThreads)
    norms_total_kernel(const double* partial, int64_t blocks, double* norms) {
  await_previous();
  __shared__ double shared[2][32];
  double weights = 0, others = 0;
  for (int64_t i = threadIdx.x; i < blocks; i += kThreads) {
    weights += partial[2 * i];
    others += partial[2 * i + 1];
  }
  weights = block_fold(weights, shared[0], Plus{});
  others = block_fold(others, shared[1], Plus{});
  if (threadIdx.x == 0) {
    norms[0] += weights;
    norms[1] += others;
  }
}

template <class Rule, class Range>
void norms_of(const Rule& rule, const Range& range, double* norms, void* workspace, Stream stream,
              const char* what) {
  if (range.count <= 0) return;
  auto* const partial = static_cast<double*>(workspace);
  const int64_t blocks = divide_up(range.count, kReduceChunk);
  norms_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(
      rule, Rule::Place::of(range), range.count, range.weight_decay, partial);
  check_launch(what);
  norms_total_kernel<<<1, kThreads, 0, stream>>>(partial, blocks, norms);
  check_launch(what);
}

}  // namespace

template <class Master, class Moment, class Gradient, class Copy>
void lamb(std::span<const UpdateRange<Master, Moment, Gradient, Copy>> ranges, const LambScalars& scalars,
          Stream stream) {
  update_moments<Lamb, PlainMaster<Master, Copy>, Moment, Gradient>(scalars, ranges, stream, "lamb");
}

template <class Moment, class Gradient>
void lamb(std::span<const SplitUpdateRange<Moment, Gradient>> ranges, const LambScalars& scalars,
          Stream stream) {
  update_moments<Lamb, SplitMaster, Moment, Gradient>(scalars, ranges, stream, "lamb");
}

template <class Master, class Moment, class Gradient, class Copy>
void lamb_norms(const UpdateRange<Master, Moment, Gradient, Copy>& range, const LambScalars& scalars,
                double* norms, void* workspace, Stream stream) {
  norms_of(Lamb<PlainMaster<Master, Copy>, Moment, Gradient, Nearest>{scalars}, range, norms, workspace,
           stream, "lamb_norms");
}

template <class Moment, class Gradient>
void lamb_norms(const SplitUpdateRange<Moment, Gradient>& range, const LambScalars& scalars, double* norms,
                void* workspace, Stream stream) {
  norms_of(Lamb<SplitMaster, Moment, Gradient, Nearest>{scalars}, range, norms, workspace, stream,
           "lamb_norms");
}

template <class Master, class Moment, class Gradient, class Copy>
void lars(std::span<const UpdateRange<Master, Moment, Gradient, Copy>> ranges, const LarsScalars& scalars,
          Stream stream) {
  update_moments<Lars, PlainMaster<Master, Copy>, Moment, Gradient>(scalars, ranges, stream, "lars");
}

template <class Moment, class Gradient>
void lars(std::span<const SplitUpdateRange<Moment, Gradient>> ranges, const LarsScalars& scalars,
          Stream stream) {
  update_moments<Lars, SplitMaster, Moment, Gradient>(scalars, ranges, stream, "lars");
}

template <class Master, class Moment, class Gradient, class Copy>
void lars_norms(const UpdateRange<Master, Moment, Gradient, Copy>& range, const LarsScalars& scalars,
                double* norms, void* workspace, Stream stream) {
  norms_of(Lars<PlainMaster<Master, Copy>, Moment, Gradient, Nearest>{scalars}, range, norms, workspace,
           stream, "lars_norms");
}

template <class Moment, class Gradient>
void lars_norms(const SplitUpdateRange<Moment, Gradient>& range, const LarsScalars& scalars, double* norms,
                void* workspace, Stream stream) {
  norms_of(Lars<SplitMaster, Moment, Gradient, Nearest>{scalars}, range, norms, workspace, stream,
           "lars_norms");
}

#define INSTANTIATE(M, V, G, C)                                                                         \
  template void lamb(std::span<const UpdateRange<M, V, G, C>>, const LambScalars&, Stream);             \
  template void lamb_norms(const UpdateRange<M, V, G, C>&, const LambScalars&, double*, void*, Stream); \
  template void lars(std::span<const UpdateRange<M, V, G, C>>, const LarsScalars&, Stream);             \
  template void lars_norms(const UpdateRange<M, V, G, C>&, const LarsScalars&, double*, void*, Stream);
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
#define INSTANTIATE(V, G)                                                                              \
  template void lamb(std::span<const SplitUpdateRange<V, G>>, const LambScalars&, Stream);             \
  template void lamb_norms(const SplitUpdateRange<V, G>&, const LambScalars&, double*, void*, Stream); \
  template void lars(std::span<const SplitUpdateRange<V, G>>, const LarsScalars&, Stream);             \
  template void lars_norms(const SplitUpdateRange<V, G>&, const LarsScalars&, double*, void*, Stream);
INSTANTIATE(float, float)
INSTANTIATE(float, Bf16)
INSTANTIATE(Bf16, float)
INSTANTIATE(Bf16, Bf16)
#undef INSTANTIATE

}  // namespace quintet::kernels::cuda
