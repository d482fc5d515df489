// Shared by the kernels of all optimizers: how masters are stored, the ranges of a launch, and the loop over
// their elements. A rule supplies Place, Loaded, factors(), load() and apply().
#pragma once

#include "kernels/cuda/elementwise/each.cuh"
#include "kernels/cuda/optimizer/optimizer.h"
#include "kernels/cuda/optimizer/rounding.cuh"

namespace quintet::kernels::cuda {
namespace {

inline constexpr int kThreads = 256, kUnroll = 2;
// Elements per block, in vectors of V: all its loads are in flight at once. A block that iterates over four
// times as many is 2 to 5 % slower, since no load is in flight when an iteration starts.
template <int V>
inline constexpr int64_t kChunk = int64_t{kThreads * kUnroll * V};

struct Rates {
  double lr_factor, weight_decay;
};

// The ranges of one launch and the blocks assigned to them, passed by value so that a captured graph holds
// them.
template <class Place>
struct Ranges {
  static constexpr int kMaxRanges = sizeof(Place) > 56 ? 32 : sizeof(Place) > 40 ? 48 : 64, kMaxRates = 16;
  int count = 0, num_rates = 0;
  Place place[kMaxRanges];  // of the first elements
  int64_t size[kMaxRanges];
  unsigned block_end[kMaxRanges];
  uint8_t rates_of[kMaxRanges];  // index into rates
  Rates rates[kMaxRates];        // different ones
};

// Whether p is aligned to a vector of four elements (two doubles). Null counts as aligned.
template <class T>
bool in_packs(const T* p) {
  return reinterpret_cast<uintptr_t>(p) % (sizeof(T) == 2 ? 8 : 16) == 0;
}

// How a master is stored: as a float or double with an optional rounded copy, or split.
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
      // Rounding would carry infinity and NaN into other values: they are truncated instead.
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
inline SplitMaster master_of(const SplitEmaRange& r) {
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

// Weight decay in this step.
template <class Scalars>
__device__ double decay_of(const Scalars& k, double weight_decay) {
  return k.decay_ratio != nullptr ? weight_decay * *k.decay_ratio : weight_decay;
}

template <class P>
struct Factors {
  P keep, rate, root, clip;
  bool ok;
  P decay = 0;  // Adam: factor of p in the gradient
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
    shared = rule.factors(ranges.rates[ranges.rates_of[range]], place);  // while loads are in flight
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

// Aligned ranges, whose elements are accessed as vectors, and all others get separate launches.
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
      if (ranges.count == Launch::kMaxRanges || find_rates(r) == Launch::kMaxRates) launch();
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

// With the rounding that the ranges ask for; f32 moments are what was computed.
template <template <class, class, class, class> class Rule, class Master, class Moment, class Gradient,
          class Scalars, class Range>
void update_moments(const Scalars& k, std::span<const Range> ranges, Stream stream, const char* what) {
  if constexpr (!std::is_same_v<Moment, float>)
    if (!ranges.empty() && ranges[0].origin.random())
      return update(Rule<Master, Moment, Gradient, Stochastic>{k}, ranges, stream, what);
  update(Rule<Master, Moment, Gradient, Nearest>{k}, ranges, stream, what);
}

}  // namespace
}  // namespace quintet::kernels::cuda
