#include <algorithm>

#include "kernels/cuda/elementwise/rope.h"
#include "kernels/cuda/support/launch.cuh"
#include "kernels/cuda/support/vector16.cuh"

namespace quintet::kernels::cuda {
namespace {

// A thread has V pairs of one token, whose angles it computes once for several heads: no thread waits for
// another, and the loads of the first rows are in flight while angles are computed.
inline constexpr int kThreads = 128, kBlocks = 6;  // per multiprocessor: registers for all loads in flight
inline constexpr int kUnroll = 4;                  // heads in flight at once
// Threads get two batches of heads where that leaves enough of them for a large GPU, else one.
inline constexpr int64_t kManyThreads = 192 << 10;

template <class T>
struct Rope {
  const T* x;
  T* y;
  const int32_t* positions;
  const double* inv_freq;
  Stat<T> scale, sine_scale;
  int64_t x_stride, y_stride, tokens;
  int heads, half, width;  // pairs of a head; its elements
  unsigned groups;         // of group_heads heads each
  int group_heads;
};

// Cosine and sine. The angle is reduced to [-pi/4, pi/4] in double, so that large positions lose no accuracy;
// there the polynomials are accurate to one unit in the last place of 1.
__device__ __forceinline__ void cos_sin(double angle, float& c, float& s) {
  constexpr double kRound = 0x1.8p52;  // adding it rounds to an integer, in the low bits
  constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
  constexpr double kHalfPi = 0x1.921fb54442d18p+0, kHalfPiRest = 0x1.1a62633145c07p-54;
  const double shifted = fma(angle, kTwoOverPi, kRound), turns = shifted - kRound;
  const auto quadrant = static_cast<uint32_t>(__double2loint(shifted));
  const auto r = static_cast<float>(fma(turns, -kHalfPiRest, fma(turns, -kHalfPi, angle)));
  const float z = r * r;
  const float sine =
      fmaf(r * z, fmaf(z, fmaf(z, -0.00019515218446031213f, 0.00833216030150652f), -0.16666655242443085f), r);
  const float cosine =
      fmaf(z,
           fmaf(z, fmaf(z, fmaf(z, 2.4433082217001356e-05f, -0.0013887315290048718f), 0.04166664555668831f),
                -0.5f),
           1.0f);
  const bool odd = (quadrant & 1) != 0;
  s = __uint_as_float(__float_as_uint(odd ? cosine : sine) ^ ((quadrant & 2) << 30));
  c = __uint_as_float(__float_as_uint(odd ? sine : cosine) ^ (((quadrant + 1) & 2) << 30));
}
__device__ __forceinline__ void cos_sin(double angle, double& c, double& s) { sincos(angle, &s, &c); }

template <class T, int V>
__global__ void __launch_bounds__(kThreads, kBlocks) rope_kernel(Rope<T> a) {
  await_previous();
  using S = Stat<T>;
  const unsigned tokens_before = blockIdx.x / a.groups, group = blockIdx.x - tokens_before * a.groups;
  const int64_t token = static_cast<int64_t>(tokens_before) * blockDim.y + threadIdx.y;
  const int d = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x) * V;
  if (token >= a.tokens || d >= a.half) return;
  const int first = static_cast<int>(group) * a.group_heads;
  const int heads = min(a.group_heads, a.heads - first), width = a.width;
  const T* from = a.x + token * a.x_stride + first * width + d;
  T* to = a.y + token * a.y_stride + first * width + d;
  Pack<T, V> low[kUnroll], high[kUnroll];
  const auto fetch_heads = [&](int head) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (head + u >= heads) continue;
      low[u] = fetch<V>(from + (head + u) * width);
      high[u] = fetch<V>(from + (head + u) * width + a.half);
    }
  };
  constexpr int kPair = V % 2 == 0 ? 2 : 1;  // frequencies per access
  Pack<double, kPair> frequencies[V / kPair];
#pragma unroll
  for (int k = 0; k < V / kPair; ++k) frequencies[k] = fetch<kPair>(a.inv_freq + d + k * kPair);
  const double position = a.positions[token];
  fetch_heads(0);
  Vals<S, V> c, s;
#pragma unroll
  for (int k = 0; k < V; ++k) {
    cos_sin(position * values<double, kPair>(frequencies[k / kPair]).v[k % kPair], c.v[k], s.v[k]);
    c.v[k] *= a.scale;
    s.v[k] *= a.sine_scale;
  }
  for (int head = 0;;) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (head + u >= heads) continue;
      auto p = values<T, V>(low[u]), q = values<T, V>(high[u]);
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const S left = p.v[k], right = q.v[k];
        p.v[k] = left * c.v[k] - right * s.v[k];
        q.v[k] = right * c.v[k] + left * s.v[k];
      }
      store<V>(to + (head + u) * width, p);
      store<V>(to + (head + u) * width + a.half, q);
    }
    head += kUnroll;
    if (head >= heads) break;
    fetch_heads(head);
  }
  if (a.x == a.y) return;
  // The threads of a token share the elements that are not rotated.
  const int step = (a.half + V - 1) / V;
  for (int head = 0; head < heads; ++head)
    for (int i = 2 * a.half - d + d / V; i + d < width; i += step)
      to[head * width + i] = from[head * width + i];
}

template <class T, int V>
void launch_rope(Rope<T> a, Stream stream) {
  const int64_t packs = a.half / V, x = std::min<int64_t>(packs, kThreads);
  const bool many = a.tokens * packs * divide_up(a.heads, 2 * kUnroll) >= kManyThreads;
  a.group_heads = many ? 2 * kUnroll : kUnroll;
  a.groups = static_cast<unsigned>(divide_up(a.heads, a.group_heads));
  const dim3 block(static_cast<unsigned>(x), static_cast<unsigned>(kThreads / x));
  const dim3 grid(static_cast<unsigned>(divide_up(a.tokens, block.y) * a.groups),
                  static_cast<unsigned>(divide_up(packs, x)));
  rope_kernel<T, V><<<grid, block, 0, stream>>>(a);
  check_launch("rope");
}

}  // namespace

template <class T>
void rope(const T* x, int64_t x_stride, const int32_t* positions, const double* inv_freq, double scale, T* y,
          int64_t y_stride, int64_t tokens, int64_t heads, int64_t head_dim, bool inverse, Stream stream,
          int64_t rotated) {
  const int64_t half = (rotated == 0 ? head_dim : rotated) / 2;
  if (tokens <= 0 || heads <= 0 || half <= 0) return;
  const Rope<T> a{.x = x,
                  .y = y,
                  .positions = positions,
                  .inv_freq = inv_freq,
                  .scale = static_cast<Stat<T>>(scale),
                  .sine_scale = static_cast<Stat<T>>(inverse ? -scale : scale),
                  .x_stride = x_stride,
                  .y_stride = y_stride,
                  .tokens = tokens,
                  .heads = static_cast<int>(heads),
                  .half = static_cast<int>(half),
                  .width = static_cast<int>(head_dim)};
  constexpr int V = kWide<T>;
  if (half % V == 0 && head_dim % V == 0 && x_stride % V == 0 && y_stride % V == 0 &&
      all_aligned16(x, y, inv_freq))
    launch_rope<T, V>(a, stream);
  else
    launch_rope<T, 1>(a, stream);
}

template decltype(rope<double>) rope<double>;
template decltype(rope<float>) rope<float>;
template decltype(rope<Bf16>) rope<Bf16>;
template decltype(rope<F16>) rope<F16>;

}  // namespace quintet::kernels::cuda
