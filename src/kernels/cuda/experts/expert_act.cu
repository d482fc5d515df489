#include "kernels/cuda/elementwise/each.cuh"
#include "kernels/cuda/elementwise/sigmoid.cuh"
#include "kernels/cuda/experts/expert_act.h"
#include "kernels/cuda/support/thread_group.cuh"

namespace quintet::kernels::cuda {
namespace {

inline constexpr int kThreads = 256, kWarps = kThreads / 32;

// act(gate) * up and its derivatives with respect to both.
template <class T>
struct GatedUnit {
  Stat<T> value, by_gate, by_up;
};
template <class T>
__device__ GatedUnit<T> gated(Stat<T> g, Stat<T> u, Stat<T> alpha, Stat<T> limit) {
  using S = Stat<T>;
  const bool clamped = limit > 0, high = clamped && g > limit, out = clamped && (u > limit || u < -limit);
  if (clamped) {
    g = high ? limit : g;
    u = (u > limit ? limit : u < -limit ? -limit : u) + S(1);
  }
  const Sigmoid<T> z = sigmoid<T>(alpha * g);
  const S act = g * z.s;
  // d (g s) / dg = s (1 + alpha g (1 - s))
  return {act * u, high ? S(0) : u * (z.s * (alpha * g * z.c + S(1))), out ? S(0) : act};
}

template <class T>
struct ExpertAct {
  const T *gate, *up;
  const Stat<T>* weight;
  T* h;
  const int64_t* rows;
  int64_t n;
  Stat<T> alpha, limit;
  template <int V>
  struct Loaded {
    bool used;
    Stat<T> weight;
    Pack<T, V> gate, up;
  };
  template <int V>
  __device__ Loaded<V> load(int64_t r, int64_t i) const {
    Loaded<V> in;
    in.used = r < *rows;
    if (in.used) {
      in.weight = weight[r];
      in.gate = fetch<V>(gate + r * n + i);
      in.up = fetch<V>(up + r * n + i);
    }
    return in;
  }
  template <int V>
  __device__ void store(int64_t r, int64_t i, const Loaded<V>& in) const {
    if (!in.used) return;
    auto out = values<T, V>(in.gate);
    const auto u = values<T, V>(in.up);
#pragma unroll
    for (int k = 0; k < V; ++k) out.v[k] = in.weight * gated<T>(out.v[k], u.v[k], alpha, limit).value;
    cuda::store<V>(h + r * n + i, out);
  }
};

// Rows with one sum per row. A body F has, with load and store as in each.cuh,
//   load<V>(row, i)
//   store<V>(row, i, loaded, scalar)  returns its terms of the sum
//   scalar(row)                       computed once per row
//   finish(row, scalar, sum)          ends the row
// A warp has a row, so that no warp waits for another; long rows get a block.
template <int V, int U, bool kWhole, class F>
__global__ void __launch_bounds__(kThreads) row_sums_kernel(F f, int64_t rows, int64_t n) {
  await_previous();
  using S = typename F::Sum;
  __shared__ S shared[32];
  const int64_t row = kWhole ? blockIdx.x : static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (row >= (f.rows != nullptr ? *f.rows : rows)) return;
  const int64_t step = kWhole ? kThreads * V : 32 * V, me = (kWhole ? threadIdx.x : threadIdx.x % 32) * V;
  const auto scalar = f.scalar(row);
  S sum[1] = {S(0)};
  for (int64_t first = me; first < n; first += U * step) {
    decltype(f.template load<V>(0, 0)) loaded[U];
#pragma unroll
    for (int u = 0; u < U; ++u)
      if (first + u * step < n) loaded[u] = f.template load<V>(row, first + u * step);
#pragma unroll
    for (int u = 0; u < U; ++u)
      if (first + u * step < n) sum[0] += f.template store<V>(row, first + u * step, loaded[u], scalar);
  }
  group_sum<kWhole ? 0 : 32>(sum, shared);
  if (me == 0) f.finish(row, scalar, sum[0]);
}

template <int V, int U, class F>
void row_sums(const F& f, int64_t rows, int64_t n, bool wide, Stream stream, const char* what) {
  const auto launch = [&]<int kWidth>(std::integral_constant<int, kWidth>) {
    if (n / kWidth >= 4 * kThreads)
      row_sums_kernel<kWidth, U, true><<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(f, rows, n);
    else
      row_sums_kernel<kWidth, U, false>
          <<<static_cast<unsigned>(divide_up(rows, kWarps)), kThreads, 0, stream>>>(f, rows, n);
  };
  if (wide)
    launch(std::integral_constant<int, V>{});
  else
    launch(std::integral_constant<int, 1>{});
  check_launch(what);
}

template <class T>
struct ExpertActBackward {
  using Sum = Stat<T>;
  const T *dh, *gate, *up;
  const Sum* weight;
  T *dgate, *dup;
  Sum* dweight;
  const int64_t* rows;
  int64_t n;
  Sum alpha, limit;
  template <int V>
  struct Loaded {
    Pack<T, V> dh, gate, up;
  };
  __device__ Sum scalar(int64_t r) const { return weight[r]; }
  template <int V>
  __device__ Loaded<V> load(int64_t r, int64_t i) const {
    const int64_t at = r * n + i;
    return {fetch<V>(dh + at), fetch<V>(gate + at), fetch<V>(up + at)};
  }
  template <int V>
  __device__ Sum store(int64_t r, int64_t i, const Loaded<V>& in, Sum w) const {
    auto d = values<T, V>(in.dh), g = values<T, V>(in.gate);
    const auto u = values<T, V>(in.up);
    Sum sum = 0;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const GatedUnit<T> unit = gated<T>(g.v[k], u.v[k], alpha, limit);
      sum += d.v[k] * unit.value;
      g.v[k] = w * d.v[k] * unit.by_gate;
      d.v[k] = w * d.v[k] * unit.by_up;
    }
    cuda::store<V>(dgate + r * n + i, g);
    cuda::store<V>(dup + r * n + i, d);
    return sum;
  }
  __device__ void finish(int64_t r, Sum, Sum sum) const { dweight[r] = sum; }
};

template <class T>
struct ScaleRows {
  const T *y, *g;
  T* z;
  int64_t n;
  template <int V>
  struct Loaded {
    Pack<T, V> y;
    Pack<T, 1> g;
  };
  template <int V>
  __device__ Loaded<V> load(int64_t r, int64_t i) const {
    return {fetch<V>(y + r * n + i), fetch<1>(g + r)};
  }
  template <int V>
  __device__ void store(int64_t r, int64_t i, const Loaded<V>& in) const {
    const Stat<T> s = sigmoid<T>(values<T, 1>(in.g).v[0]).s;
    auto out = values<T, V>(in.y);
#pragma unroll
    for (int k = 0; k < V; ++k) out.v[k] *= s;
    cuda::store<V>(z + r * n + i, out);
  }
};

template <class T>
struct ScaleRowsBackward {
  using Sum = Stat<T>;
  const T *dz, *y, *g;
  T *dy, *dg;
  int64_t n;
  const int64_t* rows = nullptr;  // all
  template <int V>
  struct Loaded {
    Pack<T, V> dz, y;
  };
  __device__ Sigmoid<T> scalar(int64_t r) const { return sigmoid<T>(cuda::load<1>(g + r).v[0]); }
  template <int V>
  __device__ Loaded<V> load(int64_t r, int64_t i) const {
    return {fetch<V>(dz + r * n + i), fetch<V>(y + r * n + i)};
  }
  template <int V>
  __device__ Sum store(int64_t r, int64_t i, const Loaded<V>& in, const Sigmoid<T>& z) const {
    auto d = values<T, V>(in.dz);
    const auto v = values<T, V>(in.y);
    Sum sum = 0;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      sum += d.v[k] * v.v[k];
      d.v[k] *= z.s;
    }
    cuda::store<V>(dy + r * n + i, d);
    return sum;
  }
  __device__ void finish(int64_t r, const Sigmoid<T>& z, Sum sum) const {
    cuda::store<1>(dg + r, Vals<Sum, 1>{{z.s * z.c * sum}});
  }
};

// Over rows of heads * (d1 + d2).
template <class T>
struct JoinHeads {
  const T *a, *b;
  bool shared;
  T* y;
  int64_t heads;
  uint32_t d1, d2;
  template <int V>
  __device__ Pack<T, V> load(int64_t r, int64_t column) const {
    const uint32_t at = static_cast<uint32_t>(column), head = at / (d1 + d2), i = at % (d1 + d2);
    return fetch<V>(i < d1 ? a + (r * heads + head) * d1 + i
                           : b + (shared ? r : r * heads + head) * d2 + (i - d1));
  }
  template <int V>
  __device__ void store(int64_t r, int64_t column, Pack<T, V> in) const {
    put<V>(y + r * heads * (d1 + d2) + column, in);
  }
};

// The inverse: each column goes to its part.
template <class T>
struct SplitHeads {
  const T* y;
  T *a, *b;
  int64_t heads;
  uint32_t d1, d2;
  template <int V>
  __device__ Pack<T, V> load(int64_t r, int64_t column) const {
    return fetch<V>(y + r * heads * (d1 + d2) + column);
  }
  template <int V>
  __device__ void store(int64_t r, int64_t column, Pack<T, V> in) const {
    const uint32_t at = static_cast<uint32_t>(column), head = at / (d1 + d2), i = at % (d1 + d2);
    const int64_t row = r * heads + head;
    put<V>(i < d1 ? a + row * d1 + i : b + row * d2 + (i - d1), in);
  }
};

// part[row, n] = whole[row, 0 .. n), a row being one of a head.
template <class T>
struct TakeFirst {
  const T* whole;
  int64_t width;
  T* part;
  int64_t n;
  template <int V>
  __device__ Pack<T, V> load(int64_t r, int64_t i) const {
    return fetch<V>(whole + r * width + i);
  }
  template <int V>
  __device__ void store(int64_t r, int64_t i, Pack<T, V> in) const {
    put<V>(part + r * n + i, in);
  }
};
// part[row, n] = the sum over the row's heads of whole[head, begin .. begin + n).
template <class T>
struct SumPart {
  const T* whole;
  int64_t heads, width, begin;
  T* part;
  int64_t n;
  template <int V>
  __device__ Vals<Stat<T>, V> load(int64_t r, int64_t i) const {
    Vals<Stat<T>, V> sum = {};
#pragma unroll 16
    for (int64_t h = 0; h < heads; ++h) {
      const auto v = cuda::load<V>(whole + (r * heads + h) * width + begin + i);
#pragma unroll
      for (int k = 0; k < V; ++k) sum.v[k] += v.v[k];
    }
    return sum;
  }
  template <int V>
  __device__ void store(int64_t r, int64_t i, const Vals<Stat<T>, V>& sum) const {
    cuda::store<V>(part + r * n + i, sum);
  }
};

}  // namespace

template <class T>
void expert_act(const T* gate, const T* up, const Stat<T>* weight, T* h, const int64_t* rows, int64_t most,
                int64_t n, const ExpertGate& form, Stream stream) {
  each_row<kWide<T>, 2>(ExpertAct<T>{gate, up, weight, h, rows, n, static_cast<Stat<T>>(form.alpha),
                                     static_cast<Stat<T>>(form.limit)},
                        most, n, n % kWide<T> == 0 && all_aligned16(gate, up, h), stream, "expert_act");
}

template <class T>
void expert_act_backward(const T* dh, const T* gate, const T* up, const Stat<T>* weight, T* dgate, T* dup,
                         Stat<T>* dweight, const int64_t* rows, int64_t most, int64_t n,
                         const ExpertGate& form, Stream stream) {
  if (most <= 0) return;
  row_sums<kWide<T>, 2>(
      ExpertActBackward<T>{dh, gate, up, weight, dgate, dup, dweight, rows, n,
                           static_cast<Stat<T>>(form.alpha), static_cast<Stat<T>>(form.limit)},
      most, n, n % kWide<T> == 0 && all_aligned16(dh, gate, up, dgate, dup), stream, "expert_act_backward");
}

template <class T>
void scale_rows(const T* y, const T* g, T* z, int64_t rows, int64_t n, Stream stream) {
  each_row<kWide<T>, 4>(ScaleRows<T>{y, g, z, n}, rows, n, n % kWide<T> == 0 && all_aligned16(y, z), stream,
                        "scale_rows");
}

template <class T>
void scale_rows_backward(const T* dz, const T* y, const T* g, T* dy, T* dg, int64_t rows, int64_t n,
                         Stream stream) {
  if (rows <= 0) return;
  row_sums<kWide<T>, 4>(ScaleRowsBackward<T>{dz, y, g, dy, dg, n}, rows, n,
                        n % kWide<T> == 0 && all_aligned16(dz, y, dy), stream, "scale_rows_backward");
}

template <class T>
void join_heads(const T* a, const T* b, bool shared, T* y, int64_t rows, int64_t heads, int64_t d1,
                int64_t d2, Stream stream) {
  const bool wide = d1 % kWide<T> == 0 && d2 % kWide<T> == 0 && all_aligned16(a, b, y);
  each_row<kWide<T>, 4>(
      JoinHeads<T>{a, b, shared, y, heads, static_cast<uint32_t>(d1), static_cast<uint32_t>(d2)}, rows,
      heads * (d1 + d2), wide, stream, "join_heads");
}

template <class T>
void join_heads_backward(const T* dy, bool shared, T* da, T* db, int64_t rows, int64_t heads, int64_t d1,
                         int64_t d2, Stream stream) {
  const bool wide = d1 % kWide<T> == 0 && d2 % kWide<T> == 0 && all_aligned16(dy, da, db);
  const int64_t d = d1 + d2;
  if (!shared)
    return each_row<kWide<T>, 4>(
        SplitHeads<T>{dy, da, db, heads, static_cast<uint32_t>(d1), static_cast<uint32_t>(d2)}, rows,
        heads * d, wide, stream, "join_heads_backward");
  each_row<kWide<T>, 4>(TakeFirst<T>{dy, d, da, d1}, rows * heads, d1, wide, stream, "join_heads_backward");
  each_row<kWide<T>, 1>(SumPart<T>{dy, heads, d, d1, db, d2}, rows, d2, wide, stream, "join_heads_backward");
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
