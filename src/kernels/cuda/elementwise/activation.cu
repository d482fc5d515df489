#include "kernels/cuda/elementwise/activation.h"
#include "kernels/cuda/elementwise/each.cuh"
#include "kernels/cuda/elementwise/gates.cuh"

namespace quintet::kernels::cuda {
namespace {

template <class T, class A>
struct Apply {
  const T* x;
  T* y;
  template <int V>
  __device__ Pack<T, V> load(int64_t i) const {
    return fetch<V>(x + i);
  }
  template <int V>
  __device__ void store(int64_t i, Pack<T, V> in) const {
    auto v = values<T, V>(in);
#pragma unroll
    for (int k = 0; k < V; ++k) v.v[k] = A::template value<T>(v.v[k]);
    cuda::store<V>(y + i, v);
  }
};

template <class T, class A>
struct ApplyBackward {
  const T *dy, *x;
  T* dx;
  template <int V>
  struct Loaded {
    Pack<T, V> dy, x;
  };
  template <int V>
  __device__ Loaded<V> load(int64_t i) const {
    return {fetch<V>(dy + i), fetch<V>(x + i)};
  }
  template <int V>
  __device__ void store(int64_t i, Loaded<V> in) const {
    auto g = values<T, V>(in.dy);
    const auto v = values<T, V>(in.x);
#pragma unroll
    for (int k = 0; k < V; ++k) g.v[k] *= A::template both<T>(v.v[k]).slope;
    cuda::store<V>(dx + i, g);
  }
};

template <class T, class A>
struct Gated {
  const T *gate, *up;
  int64_t stride;
  T* y;
  int64_t n;
  template <int V>
  struct Loaded {
    Pack<T, V> gate, up;
  };
  template <int V>
  __device__ Loaded<V> load(int64_t r, int64_t i) const {
    return {fetch<V>(gate + r * stride + i), fetch<V>(up + r * stride + i)};
  }
  template <int V>
  __device__ void store(int64_t r, int64_t i, Loaded<V> in) const {
    auto g = values<T, V>(in.gate);
    const auto u = values<T, V>(in.up);
#pragma unroll
    for (int k = 0; k < V; ++k) g.v[k] = A::template value<T>(g.v[k]) * u.v[k];
    cuda::store<V>(y + r * n + i, g);
  }
};

template <class T, class A>
struct GatedBackward {
  const T *dy, *gate, *up;
  int64_t stride;
  T *dgate, *dup, *y;
  int64_t n;
  template <int V>
  struct Loaded {
    Pack<T, V> dy, gate, up;
  };
  template <int V>
  __device__ Loaded<V> load(int64_t r, int64_t i) const {
    return {fetch<V>(dy + r * n + i), fetch<V>(gate + r * stride + i), fetch<V>(up + r * stride + i)};
  }
  template <int V>
  __device__ void store(int64_t r, int64_t i, Loaded<V> in) const {
    using S = Stat<T>;
    const auto d = values<T, V>(in.dy), g = values<T, V>(in.gate), u = values<T, V>(in.up);
    Vals<S, V> to_gate, to_up, again;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const Slope<T> act = A::template both<T>(g.v[k]);
      to_up.v[k] = d.v[k] * act.value;
      to_gate.v[k] = d.v[k] * u.v[k] * act.slope;
      again.v[k] = act.value * u.v[k];
    }
    cuda::store<V>(dgate + r * stride + i, to_gate);
    cuda::store<V>(dup + r * stride + i, to_up);
    if (y != nullptr) cuda::store<V>(y + r * n + i, again);
  }
};

template <class T>
struct Cap {
  const T* x;
  T* y;
  Stat<T> cap;
  template <int V>
  __device__ Pack<T, V> load(int64_t i) const {
    return fetch<V>(x + i);
  }
  template <int V>
  __device__ void store(int64_t i, Pack<T, V> in) const {
    auto v = values<T, V>(in);
#pragma unroll
    for (int k = 0; k < V; ++k) v.v[k] = cap * tanh(v.v[k] / cap);
    cuda::store<V>(y + i, v);
  }
};

template <class T>
struct CapBackward {
  const T *dy, *x;
  T* dx;
  Stat<T> cap;
  template <int V>
  struct Loaded {
    Pack<T, V> dy, x;
  };
  template <int V>
  __device__ Loaded<V> load(int64_t i) const {
    return {fetch<V>(dy + i), fetch<V>(x + i)};
  }
  template <int V>
  __device__ void store(int64_t i, Loaded<V> in) const {
    auto g = values<T, V>(in.dy);
    const auto v = values<T, V>(in.x);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const Stat<T> t = tanh(v.v[k] / cap);
      g.v[k] *= Stat<T>(1) - t * t;
    }
    cuda::store<V>(dx + i, g);
  }
};

template <class T>
bool wide_rows(int64_t stride, int64_t n) {
  return n % kWide<T> == 0 && stride % kWide<T> == 0;
}

template <class A, class T>
void gated(const T* gate, const T* up, int64_t stride, T* y, int64_t rows, int64_t n, Stream stream) {
  each_row<kWide<T>, 2>(Gated<T, A>{gate, up, stride, y, n}, rows, n,
                        wide_rows<T>(stride, n) && all_aligned16(gate, up, y), stream, "swiglu");
}
template <class A, class T>
void gated_backward(const T* dy, const T* gate, const T* up, int64_t stride, T* dgate, T* dup, T* y,
                    int64_t rows, int64_t n, Stream stream) {
  each_row<kWide<T>, 1>(GatedBackward<T, A>{dy, gate, up, stride, dgate, dup, y, n}, rows, n,
                        wide_rows<T>(stride, n) && all_aligned16(dy, gate, up, dgate, dup, y), stream,
                        "swiglu_backward");
}
template <class A, class T>
void apply(const T* x, T* y, int64_t n, Stream stream, const char* name) {
  each<kWide<T>, 2>(Apply<T, A>{x, y}, n, all_aligned16(x, y), stream, name);
}
template <class A, class T>
void apply_backward(const T* dy, const T* x, T* dx, int64_t n, Stream stream, const char* name) {
  each<kWide<T>, 2>(ApplyBackward<T, A>{dy, x, dx}, n, all_aligned16(dy, x, dx), stream, name);
}

}  // namespace

template <class T>
void swiglu(const T* gate, const T* up, int64_t in_stride, T* y, int64_t rows, int64_t n, Stream stream,
            Gate act) {
  if (act == Gate::GeluTanh) return gated<Gelu>(gate, up, in_stride, y, rows, n, stream);
  gated<Silu>(gate, up, in_stride, y, rows, n, stream);
}

template <class T>
void swiglu_backward(const T* dy, const T* gate, const T* up, int64_t in_stride, T* dgate, T* dup, T* y,
                     int64_t rows, int64_t n, Stream stream, Gate act) {
  if (act == Gate::GeluTanh)
    return gated_backward<Gelu>(dy, gate, up, in_stride, dgate, dup, y, rows, n, stream);
  gated_backward<Silu>(dy, gate, up, in_stride, dgate, dup, y, rows, n, stream);
}

template <class T>
void gelu(const T* x, T* y, int64_t n, Stream stream, GeluForm form) {
  if (form == GeluForm::Erf) return apply<GeluErf>(x, y, n, stream, "gelu");
  apply<Gelu>(x, y, n, stream, "gelu");
}
template <class T>
void gelu_backward(const T* dy, const T* x, T* dx, int64_t n, Stream stream, GeluForm form) {
  if (form == GeluForm::Erf) return apply_backward<GeluErf>(dy, x, dx, n, stream, "gelu_backward");
  apply_backward<Gelu>(dy, x, dx, n, stream, "gelu_backward");
}

template <class T>
void silu(const T* x, T* y, int64_t n, Stream stream) {
  apply<Silu>(x, y, n, stream, "silu");
}
template <class T>
void silu_backward(const T* dy, const T* x, T* dx, int64_t n, Stream stream) {
  apply_backward<Silu>(dy, x, dx, n, stream, "silu_backward");
}

template <class T>
void soft_cap(const T* x, double cap, T* y, int64_t n, Stream stream) {
  each<kWide<T>, 2>(Cap<T>{x, y, static_cast<Stat<T>>(cap)}, n, all_aligned16(x, y), stream, "soft_cap");
}
template <class T>
void soft_cap_backward(const T* dy, const T* x, double cap, T* dx, int64_t n, Stream stream) {
  each<kWide<T>, 2>(CapBackward<T>{dy, x, dx, static_cast<Stat<T>>(cap)}, n, all_aligned16(dy, x, dx), stream,
                    "soft_cap_backward");
}

#define INSTANTIATE(T)                                      \
  template decltype(swiglu<T>) swiglu<T>;                   \
  template decltype(swiglu_backward<T>) swiglu_backward<T>; \
  template decltype(gelu<T>) gelu<T>;                       \
  template decltype(gelu_backward<T>) gelu_backward<T>;     \
  template decltype(silu<T>) silu<T>;                       \
  template decltype(silu_backward<T>) silu_backward<T>;     \
  template decltype(soft_cap<T>) soft_cap<T>;               \
  template decltype(soft_cap_backward<T>) soft_cap_backward<T>;
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bf16)
INSTANTIATE(F16)
#undef INSTANTIATE

}  // namespace quintet::kernels::cuda
