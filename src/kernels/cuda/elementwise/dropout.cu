#include <algorithm>

#include "kernels/cuda/elementwise/dropout.h"
#include "kernels/cuda/elementwise/pointwise.h"
#include "kernels/cuda/support/launch.cuh"
#include "kernels/cuda/support/philox.cuh"

namespace quintet::kernels::cuda {
namespace {

inline constexpr int kThreads = 256, kBlocks = 6;  // per multiprocessor
inline constexpr int kUnroll = 2;                  // vectors per thread, of one row

// What an element becomes, given its random word.
template <class T>
struct Drop {
  uint32_t last_dropped;  // words above it are kept
  Stat<T> scale;

  __device__ __forceinline__ Stat<T> operator()(Stat<T> v, uint32_t word) const {
    return word > last_dropped ? v * scale : Stat<T>(0);
  }
};
template <class T>
struct Jitter {
  Stat<T> eps;

  // 24 bits, so that the random number is exact in f32 too.
  __device__ __forceinline__ Stat<T> operator()(Stat<T> v, uint32_t word) const {
    const Stat<T> t = static_cast<Stat<T>>(word >> 8) * Stat<T>(0x1p-23) + Stat<T>(0x1p-24 - 1);
    return v * (t * eps + Stat<T>(1));
  }
};

template <class T, class Rule>
struct Drawn {
  const T* x;
  T* y;
  const int32_t *samples, *positions;
  const uint64_t* key;
  Rule rule;
  int64_t offset, tokens, n;
};

// kEven: every thread has all its vectors; without a branch the loads stay ahead of the random draws.
template <class T, class Rule, int V, bool kEven>
__global__ void __launch_bounds__(kThreads, kBlocks) drawn_kernel(Drawn<T, Rule> a) {
  await_previous();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const unsigned first = blockIdx.y * blockDim.x * kUnroll + threadIdx.x,
                 packs = static_cast<unsigned>(a.n / V);
  if (row >= a.tokens || first >= packs) return;
  const auto pack = [&](int u) { return first + u * blockDim.x; };
  const auto place = [&](int u) { return row * a.n + static_cast<int64_t>(pack(u)) * V; };
  Pack<T, V> in[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u)
    if (kEven || pack(u) < packs) in[u] = fetch<V>(a.x + place(u));
  // Draws per vector: one for four elements, whose word index is a compile-time constant, else one for each.
  constexpr int kDraws = V % 4 == 0 ? V / 4 : V;
  const auto position = static_cast<uint32_t>(a.positions[row]),
             sample = static_cast<uint32_t>(a.samples[row]);
  const auto feature = [&](int u, int k) { return a.offset + static_cast<int64_t>(pack(u)) * V + k; };
  Words<4> words[kUnroll * kDraws];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u)
#pragma unroll
    for (int i = 0; i < kDraws; ++i)
      words[u * kDraws + i] = {
          {static_cast<uint32_t>(feature(u, i * (V / kDraws)) >> 2), position, sample, 0}};
  philox_each(*a.key, words);
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    if (!kEven && pack(u) >= packs) continue;
    auto v = values<T, V>(in[u]);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const Words<4>& draw = words[u * kDraws + k / (V / kDraws)];
      uint32_t word = draw.w[k % 4];
      if constexpr (V % 4 != 0) {
        const auto which = static_cast<int>(feature(u, k) & 3);
        word = which == 0 ? draw.w[0] : which == 1 ? draw.w[1] : which == 2 ? draw.w[2] : draw.w[3];
      }
      v.v[k] = a.rule(v.v[k], word);
    }
    store<V>(a.y + place(u), v);
  }
}

template <class T, class Rule, int V>
void launch_drawn(const Drawn<T, Rule>& a, Stream stream, const char* what) {
  // Threads in proportion to the row, so that few are idle.
  const int64_t each = divide_up(a.n / V, kUnroll), columns = divide_up(each, kThreads),
                x = divide_up(each, columns), y = kThreads / x;
  const dim3 block(static_cast<unsigned>(x), static_cast<unsigned>(y));
  const dim3 grid(static_cast<unsigned>(divide_up(a.tokens, y)), static_cast<unsigned>(columns));
  if (x * columns * kUnroll == a.n / V)
    drawn_kernel<T, Rule, V, true><<<grid, block, 0, stream>>>(a);
  else
    drawn_kernel<T, Rule, V, false><<<grid, block, 0, stream>>>(a);
  check_launch(what);
}

template <class T, class Rule>
void draw(const Drawn<T, Rule>& a, Stream stream, const char* what) {
  constexpr int V = kWide<T>;
  if (a.n % V == 0 && (V < 4 || a.offset % 4 == 0) && all_aligned16(a.x, a.y))
    launch_drawn<T, Rule, V>(a, stream, what);
  else
    launch_drawn<T, Rule, 1>(a, stream, what);
}

}  // namespace

template <class T>
void dropout(const T* x, const int32_t* samples, const int32_t* positions, const uint64_t* key, double p,
             int64_t feature_offset, T* y, int64_t tokens, int64_t n, Stream stream) {
  if (tokens <= 0 || n <= 0) return;
  const uint64_t threshold = keep_threshold(p);
  if (threshold == 0) return scale<T>(x, 1.0, y, tokens * n, stream);
  const Drop<T> rule{.last_dropped = static_cast<uint32_t>(threshold - 1),
                     .scale = static_cast<Stat<T>>(1.0 / (1.0 - p))};
  draw(Drawn<T, Drop<T>>{x, y, samples, positions, key, rule, feature_offset, tokens, n}, stream, "dropout");
}

template <class T>
void jitter(const T* x, const int32_t* samples, const int32_t* positions, const uint64_t* key, double eps,
            int64_t feature_offset, T* y, int64_t tokens, int64_t n, Stream stream) {
  if (tokens <= 0 || n <= 0) return;
  const Jitter<T> rule{static_cast<Stat<T>>(eps)};
  draw(Drawn<T, Jitter<T>>{x, y, samples, positions, key, rule, feature_offset, tokens, n}, stream, "jitter");
}

template decltype(dropout<double>) dropout<double>;
template decltype(jitter<double>) jitter<double>;
template decltype(dropout<float>) dropout<float>;
template decltype(jitter<float>) jitter<float>;
template decltype(dropout<Bf16>) dropout<Bf16>;
template decltype(jitter<Bf16>) jitter<Bf16>;
template decltype(dropout<F16>) dropout<F16>;
template decltype(jitter<F16>) jitter<F16>;

}  // namespace quintet::kernels::cuda
