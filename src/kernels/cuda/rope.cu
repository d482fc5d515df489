#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/rope.h"

namespace quintet::kernels::cuda {
namespace {

inline constexpr int kThreads = 256;
inline constexpr int kAngles =
    1024;  // of one block: some tokens' cosines and sines, formed once for all heads

template <class T>
struct Rope {
  const T* x;
  T* y;
  const int32_t* positions;
  const double* inv_freq;
  double scale, sine_scale;
  int64_t x_stride, y_stride, tokens;
  int heads, half, block_tokens;
};

template <class T, int V>
__global__ void __launch_bounds__(kThreads) rope_kernel(Rope<T> a) {
  await_previous();
  using S = Stat<T>;
  constexpr int kUnroll = 3;
  __shared__ S cosines[kAngles], sines[kAngles];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * a.block_tokens;
  const int tokens = static_cast<int>(a.tokens - first < a.block_tokens ? a.tokens - first : a.block_tokens);
  const unsigned packs = static_cast<unsigned>(a.half / V), heads = static_cast<unsigned>(a.heads);
  const unsigned items = static_cast<unsigned>(tokens) * heads * packs;
  const auto place = [&](unsigned item, int& token, int& head, int& d) {
    d = static_cast<int>(item % packs) * V;
    head = static_cast<int>(item / packs % heads);
    token = static_cast<int>(item / packs / heads);
  };
  Pack<T, V> low[kUnroll], high[kUnroll];
  const auto fetch_all = [&](unsigned item) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (item + u * kThreads >= items) continue;
      int token, head, d;
      place(item + u * kThreads, token, head, d);
      const T* from = a.x + (first + token) * a.x_stride + head * 2 * a.half + d;
      low[u] = fetch<V>(from);
      high[u] = fetch<V>(from + a.half);
    }
  };
  fetch_all(threadIdx.x);  // under way while the angles are formed
  for (int i = static_cast<int>(threadIdx.x); i < tokens * a.half; i += kThreads) {
    double s, c;
    sincos(static_cast<double>(a.positions[first + i / a.half]) * a.inv_freq[i % a.half], &s, &c);
    cosines[i] = static_cast<S>(c * a.scale);
    sines[i] = static_cast<S>(s * a.sine_scale);
  }
  __syncthreads();
  for (unsigned item = threadIdx.x; item < items; item += kThreads * kUnroll) {
    if (item != threadIdx.x) fetch_all(item);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (item + u * kThreads >= items) continue;
      int token, head, d;
      place(item + u * kThreads, token, head, d);
      auto p = values<T, V>(low[u]), q = values<T, V>(high[u]);
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const S c = cosines[token * a.half + d + k], s = sines[token * a.half + d + k];
        const S left = p.v[k], right = q.v[k];
        p.v[k] = left * c - right * s;
        q.v[k] = right * c + left * s;
      }
      T* to = a.y + (first + token) * a.y_stride + head * 2 * a.half + d;
      store<V>(to, p);
      store<V>(to + a.half, q);
    }
  }
}

}  // namespace

template <class T>
void rope(const T* x, int64_t x_stride, const int32_t* positions, const double* inv_freq, double scale, T* y,
          int64_t y_stride, int64_t tokens, int64_t heads, int64_t head_dim, bool inverse, Stream stream) {
  const int64_t half = head_dim / 2;
  if (tokens <= 0 || heads <= 0 || half <= 0) return;
  if (half > kAngles) fail("rope: head_dim " + std::to_string(head_dim) + " is above 2048");
  // As many tokens as give every thread an angle.
  const int64_t block_tokens = half >= kThreads ? 1 : kThreads / half;
  const Rope<T> a{x,
                  y,
                  positions,
                  inv_freq,
                  scale,
                  inverse ? -scale : scale,
                  x_stride,
                  y_stride,
                  tokens,
                  static_cast<int>(heads),
                  static_cast<int>(half),
                  static_cast<int>(block_tokens)};
  const auto blocks = static_cast<unsigned>(divide_up(tokens, block_tokens));
  constexpr int V = kWide<T>;
  if (half % V == 0 && x_stride % V == 0 && y_stride % V == 0 && all_aligned16(x, y))
    rope_kernel<T, V><<<blocks, kThreads, 0, stream>>>(a);
  else
    rope_kernel<T, 1><<<blocks, kThreads, 0, stream>>>(a);
  check_launch("rope");
}

template decltype(rope<double>) rope<double>;
template decltype(rope<float>) rope<float>;
template decltype(rope<Bf16>) rope<Bf16>;
template decltype(rope<F16>) rope<F16>;

}  // namespace quintet::kernels::cuda
