#include "kernels/cuda/expert_act.h"
#include "kernels/cuda/group.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pack.cuh"

namespace quintet::kernels::cuda {
namespace {

inline constexpr int kThreads = 256;

// sigmoid(x), and 1 - sigmoid(x) without cancellation.
template <class T>
struct Sigmoid {
  Stat<T> s, c;
  __device__ __forceinline__ explicit Sigmoid(Stat<T> x) {
    using S = Stat<T>;
    // exp of a negative number never overflows.
    const S e = Math<T>::exp(x < 0 ? x : -x), low = Math<T>::divide(e, S(1) + e),
            high = Math<T>::divide(S(1), S(1) + e);
    s = x < 0 ? low : high;
    c = x < 0 ? high : low;
  }
};

// A block has a row; `rows` (null: all) says how many there are.
template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    act_kernel(const T* gate, const T* up, const Stat<T>* weight, T* h, const int64_t* rows, int64_t n) {
  await_previous();
  const int64_t row = blockIdx.x;
  if (row >= *rows) return;
  const Stat<T> w = weight[row];
  for (int64_t i = static_cast<int64_t>(threadIdx.x) * V; i < n; i += blockDim.x * V) {
    const auto g = load<V>(gate + row * n + i), u = load<V>(up + row * n + i);
    Vals<Stat<T>, V> out;
#pragma unroll
    for (int k = 0; k < V; ++k) out.v[k] = w * (g.v[k] * Sigmoid<T>(g.v[k]).s * u.v[k]);
    store<V>(h + row * n + i, out);
  }
}

template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    act_backward_kernel(const T* dh, const T* gate, const T* up, const Stat<T>* weight, T* dgate, T* dup,
                        Stat<T>* dweight, const int64_t* rows, int64_t n) {
  await_previous();
  using S = Stat<T>;
  __shared__ S shared[32];
  const int64_t row = blockIdx.x;
  if (row >= *rows) return;
  const S w = weight[row];
  S sum = 0;
  for (int64_t i = static_cast<int64_t>(threadIdx.x) * V; i < n; i += blockDim.x * V) {
    const int64_t at = row * n + i;
    const auto d = load<V>(dh + at), g = load<V>(gate + at), u = load<V>(up + at);
    Vals<S, V> to_gate, to_up;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const Sigmoid<T> z(g.v[k]);
      const S silu = g.v[k] * z.s;
      // d silu / dz = s (1 + z (1 - s))
      to_gate.v[k] = w * d.v[k] * u.v[k] * (z.s * (g.v[k] * z.c + S(1)));
      to_up.v[k] = w * d.v[k] * silu;
      sum += d.v[k] * silu * u.v[k];
    }
    store<V>(dgate + at, to_gate);
    store<V>(dup + at, to_up);
  }
  sum = block_fold(sum, shared, Plus{});
  if (threadIdx.x == 0) dweight[row] = sum;
}

template <class T, int V>
__global__ void __launch_bounds__(kThreads) scale_kernel(const T* y, const T* g, T* z, int64_t n) {
  await_previous();
  const int64_t row = blockIdx.x;
  const Stat<T> s = Sigmoid<T>(load<1>(g + row).v[0]).s;
  for (int64_t i = static_cast<int64_t>(threadIdx.x) * V; i < n; i += blockDim.x * V) {
    auto v = load<V>(y + row * n + i);
#pragma unroll
    for (int k = 0; k < V; ++k) v.v[k] *= s;
    store<V>(z + row * n + i, v);
  }
}

template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    scale_backward_kernel(const T* dz, const T* y, const T* g, T* dy, T* dg, int64_t n) {
  await_previous();
  using S = Stat<T>;
  __shared__ S shared[32];
  const int64_t row = blockIdx.x;
  const Sigmoid<T> z(load<1>(g + row).v[0]);
  S sum = 0;
  for (int64_t i = static_cast<int64_t>(threadIdx.x) * V; i < n; i += blockDim.x * V) {
    const auto d = load<V>(dz + row * n + i), v = load<V>(y + row * n + i);
    Vals<S, V> out;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      out.v[k] = z.s * d.v[k];
      sum += d.v[k] * v.v[k];
    }
    store<V>(dy + row * n + i, out);
  }
  sum = block_fold(sum, shared, Plus{});
  if (threadIdx.x == 0) store<1>(dg + row, Vals<S, 1>{{z.s * z.c * sum}});
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    join_kernel(const T* a, const T* b, bool shared, T* y, int64_t count, int64_t heads, int64_t d1,
                int64_t d2) {
  await_previous();
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, d = d1 + d2;
  if (at >= count) return;
  const int64_t head = at / d, i = at % d;  // head counts over all rows
  const T* from = i < d1 ? a + head * d1 + i : b + (shared ? head / heads : head) * d2 + i - d1;
  put<1>(y + at, fetch<1>(from));
}

// Threads of da, then those of db.
template <class T>
__global__ void __launch_bounds__(kThreads)
    join_backward_kernel(const T* dy, bool shared, T* da, T* db, int64_t rows, int64_t heads, int64_t d1,
                         int64_t d2) {
  await_previous();
  int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t d = d1 + d2, first = rows * heads * d1;
  if (at < first) {
    put<1>(da + at, fetch<1>(dy + at / d1 * d + at % d1));
    return;
  }
  at -= first;
  if (at >= rows * (shared ? 1 : heads) * d2) return;
  const int64_t owner = at / d2, i = at % d2;  // a row, or a row's head
  if (!shared) {
    put<1>(db + at, fetch<1>(dy + owner * d + d1 + i));
    return;
  }
  Stat<T> sum = 0;
  for (int64_t h = 0; h < heads; ++h) sum += load<1>(dy + (owner * heads + h) * d + d1 + i).v[0];
  store<1>(db + at, Vals<Stat<T>, 1>{{sum}});
}

unsigned row_threads(int64_t packs) {
  unsigned threads = 32;
  while (threads < kThreads && threads < packs) threads *= 2;
  return threads;
}

// Calls fn with the width of accesses for rows of n.
template <class T, class F, class... P>
void with_width(int64_t n, const F& fn, const P*... p) {
  if (n % kWide<T> == 0 && all_aligned16(p...))
    fn(std::integral_constant<int, kWide<T>>{});
  else
    fn(std::integral_constant<int, 1>{});
}

}  // namespace

template <class T>
void expert_act(const T* gate, const T* up, const Stat<T>* weight, T* h, const int64_t* rows, int64_t most,
                int64_t n, Stream stream) {
  if (most <= 0 || n <= 0) return;
  with_width<T>(
      n,
      [&]<int V>(std::integral_constant<int, V>) {
        act_kernel<T, V>
            <<<static_cast<unsigned>(most), row_threads(n / V), 0, stream>>>(gate, up, weight, h, rows, n);
      },
      gate, up, h);
  check_launch("expert_act");
}

template <class T>
void expert_act_backward(const T* dh, const T* gate, const T* up, const Stat<T>* weight, T* dgate, T* dup,
                         Stat<T>* dweight, const int64_t* rows, int64_t most, int64_t n, Stream stream) {
  if (most <= 0) return;
  with_width<T>(
      n,
      [&]<int V>(std::integral_constant<int, V>) {
        act_backward_kernel<T, V><<<static_cast<unsigned>(most), row_threads(n / V), 0, stream>>>(
            dh, gate, up, weight, dgate, dup, dweight, rows, n);
      },
      dh, gate, up, dgate, dup);
  check_launch("expert_act_backward");
}

template <class T>
void scale_rows(const T* y, const T* g, T* z, int64_t rows, int64_t n, Stream stream) {
  if (rows <= 0 || n <= 0) return;
  with_width<T>(
      n,
      [&]<int V>(std::integral_constant<int, V>) {
        scale_kernel<T, V><<<static_cast<unsigned>(rows), row_threads(n / V), 0, stream>>>(y, g, z, n);
      },
      y, z);
  check_launch("scale_rows");
}

template <class T>
void scale_rows_backward(const T* dz, const T* y, const T* g, T* dy, T* dg, int64_t rows, int64_t n,
                         Stream stream) {
  if (rows <= 0) return;
  with_width<T>(
      n,
      [&]<int V>(std::integral_constant<int, V>) {
        scale_backward_kernel<T, V>
            <<<static_cast<unsigned>(rows), row_threads(n / V), 0, stream>>>(dz, y, g, dy, dg, n);
      },
      dz, y, dy);
  check_launch("scale_rows_backward");
}

template <class T>
void join_heads(const T* a, const T* b, bool shared, T* y, int64_t rows, int64_t heads, int64_t d1,
                int64_t d2, Stream stream) {
  const int64_t count = rows * heads * (d1 + d2);
  if (count <= 0) return;
  join_kernel<<<static_cast<unsigned>(divide_up(count, kThreads)), kThreads, 0, stream>>>(
      a, b, shared, y, count, heads, d1, d2);
  check_launch("join_heads");
}

template <class T>
void join_heads_backward(const T* dy, bool shared, T* da, T* db, int64_t rows, int64_t heads, int64_t d1,
                         int64_t d2, Stream stream) {
  const int64_t count = rows * heads * d1 + rows * (shared ? 1 : heads) * d2;
  if (count <= 0) return;
  join_backward_kernel<<<static_cast<unsigned>(divide_up(count, kThreads)), kThreads, 0, stream>>>(
      dy, shared, da, db, rows, heads, d1, d2);
  check_launch("join_heads_backward");
}

#define INSTANTIATE(T)                                              \
  template decltype(expert_act<T>) expert_act<T>;                   \
  template decltype(expert_act_backward<T>) expert_act_backward<T>; \
  template decltype(scale_rows<T>) scale_rows<T>;                   \
  template decltype(scale_rows_backward<T>) scale_rows_backward<T>; \
  template decltype(join_heads<T>) join_heads<T>;                   \
  template decltype(join_heads_backward<T>) join_heads_backward<T>;
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bf16)
INSTANTIATE(F16)
#undef INSTANTIATE

}  // namespace quintet::kernels::cuda
