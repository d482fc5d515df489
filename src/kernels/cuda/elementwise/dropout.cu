#include <algorithm>

#include "kernels/cuda/elementwise/dropout.h"
#include "kernels/cuda/elementwise/pointwise.h"
#include "kernels/cuda/support/launch.cuh"
#include "kernels/cuda/support/philox.cuh"

namespace quintet::kernels::cuda {
namespace {

inline constexpr int kThreads = 256, kBlocks = 6;  // per multiprocessor
inline constexpr int kUnroll = 2;                  // vectors per thread, of one row

template <class T>
struct Dropout {
  const T* x;
  T* y;
  const int32_t *samples, *positions;
  const uint64_t* key;
  uint32_t last_dropped;  // words above it are kept
  Stat<T> scale;
  int64_t offset, tokens, n;
};

// kEven: every thread has all its vectors; without a branch the loads stay ahead of the random draws.
template <class T, int V, bool kEven>
__global__ void __launch_bounds__(kThreads, kBlocks) dropout_kernel(Dropout<T> a) {
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
      v.v[k] = word > a.last_dropped ? v.v[k] * a.scale : Stat<T>(0);
    }
    store<V>(a.y + place(u), v);
  }
}

template <class T, int V>
void launch_dropout(const Dropout<T>& a, Stream stream) {
  // Threads in proportion to the row, so that few are idle.
  const int64_t each = divide_up(a.n / V, kUnroll), columns = divide_up(each, kThreads),
                x = divide_up(each, columns), y = kThreads / x;
  const dim3 block(static_cast<unsigned>(x), static_cast<unsigned>(y));
  const dim3 grid(static_cast<unsigned>(divide_up(a.tokens, y)), static_cast<unsigned>(columns));
  if (x * columns * kUnroll == a.n / V)
    dropout_kernel<T, V, true><<<grid, block, 0, stream>>>(a);
  else
    dropout_kernel<T, V, false><<<grid, block, 0, stream>>>(a);
  check_launch("dropout");
}

}  // namespace

template <class T>
void dropout(const T* x, const int32_t* samples, const int32_t* positions, const uint64_t* key, double p,
             int64_t feature_offset, T* y, int64_t tokens, int64_t n, Stream stream) {
  if (tokens <= 0 || n <= 0) return;
  const uint64_t threshold = keep_threshold(p);
  if (threshold == 0) return scale<T>(x, 1.0, y, tokens * n, stream);
  const Dropout<T> a{.x = x,
                     .y = y,
                     .samples = samples,
                     .positions = positions,
                     .key = key,
                     .last_dropped = static_cast<uint32_t>(threshold - 1),
                     .scale = static_cast<Stat<T>>(1.0 / (1.0 - p)),
                     .offset = feature_offset,
                     .tokens = tokens,
                     .n = n};
  constexpr int V = kWide<T>;
  if (n % V == 0 && (V < 4 || feature_offset % 4 == 0) && all_aligned16(x, y))
    launch_dropout<T, V>(a, stream);
  else
    launch_dropout<T, 1>(a, stream);
}

template decltype(dropout<double>) dropout<double>;
template decltype(dropout<float>) dropout<float>;
template decltype(dropout<Bf16>) dropout<Bf16>;
template decltype(dropout<F16>) dropout<F16>;

}  // namespace quintet::kernels::cuda
