// A warp has a row: these ops are a small part of a step.
#include "kernels/cuda/elementwise/rows.h"
#include "kernels/cuda/support/launch.cuh"
#include "kernels/cuda/support/vector16.cuh"

namespace quintet::kernels::cuda {
namespace {

inline constexpr int kThreads = 256, kWarps = kThreads / 32;

template <class T>
__device__ Stat<T> get(const T* p) {
  return load<1>(p).v[0];
}
template <class T>
__device__ void set(T* p, Stat<T> value) {
  store<1>(p, Vals<Stat<T>, 1>{{value}});
}

template <class S>
__device__ S sum_over_warp(S value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  return value;
}

// body(row, first element, step)
template <class F>
__global__ void __launch_bounds__(kThreads) rows_kernel(F body, int64_t rows) {
  await_previous();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (row < rows) body(row, threadIdx.x % 32);
}
template <class F>
void each_row_by_warp(const F& body, int64_t rows, Stream stream, const char* what) {
  if (rows <= 0) return;
  rows_kernel<<<static_cast<unsigned>(divide_up(rows, kWarps)), kThreads, 0, stream>>>(body, rows);
  check_launch(what);
}

template <class F>
__global__ void __launch_bounds__(kThreads) elements_kernel(F body, int64_t n) {
  await_previous();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n) body(i);
}
template <class F>
void each_element(const F& body, int64_t n, Stream stream, const char* what) {
  if (n <= 0) return;
  elements_kernel<<<static_cast<unsigned>(divide_up(n, int64_t{kThreads})), kThreads, 0, stream>>>(body, n);
  check_launch(what);
}

template <class T>
struct Center {
  const T* x;
  T* y;
  int64_t n;
  __device__ void operator()(int64_t r, int lane) const {
    Stat<T> sum = 0;
    for (int64_t i = lane; i < n; i += 32) sum += get(x + r * n + i);
    const Stat<T> mean = sum_over_warp(sum) / static_cast<Stat<T>>(n);
    for (int64_t i = lane; i < n; i += 32) set(y + r * n + i, get(x + r * n + i) - mean);
  }
};

// y = f x, or with dy: dx = f (dy - x f^2 mean(dy x)), with f = 1 / sqrt(mean(x^2) + eps)
template <class T>
struct UnitNorm {
  const T *dy, *x;  // dy null: forward
  T* y;
  int64_t n;
  Stat<T> eps;
  __device__ void operator()(int64_t r, int lane) const {
    using S = Stat<T>;
    S squares = 0, dot = 0;
    for (int64_t i = lane; i < n; i += 32) {
      const S v = get(x + r * n + i);
      squares += v * v;
      if (dy != nullptr) dot += v * get(dy + r * n + i);
    }
    const S f = S(1) / sqrt(sum_over_warp(squares) / static_cast<S>(n) + eps);
    const S along = f * f * sum_over_warp(dot) / static_cast<S>(n);
    for (int64_t i = lane; i < n; i += 32) {
      const S v = get(x + r * n + i);
      set(y + r * n + i, dy != nullptr ? f * (get(dy + r * n + i) - along * v) : f * v);
    }
  }
};

template <class T>
struct Clip {
  const T *dy, *x;  // dy null: forward
  Stat<T> limit;
  T* y;
  __device__ void operator()(int64_t i) const {
    const Stat<T> v = get(x + i);
    if (dy != nullptr)
      set(y + i, v > limit || v < -limit ? Stat<T>(0) : get(dy + i));
    else
      set(y + i, v > limit ? limit : v < -limit ? -limit : v);
  }
};

template <class T>
struct PositionScale {
  const T* x;
  const int32_t* positions;
  T* y;
  int64_t n;
  double scale;
  int64_t floor;
  __device__ void operator()(int64_t r, int lane) const {
    const int64_t steps = (static_cast<int64_t>(positions[r]) + 1) / floor;
    const auto factor = static_cast<Stat<T>>(1 + scale * log1p(static_cast<double>(steps)));
    for (int64_t i = lane; i < n; i += 32) set(y + r * n + i, factor * get(x + r * n + i));
  }
};

struct SplitDocuments {
  const int32_t *documents, *positions;
  int32_t* out;
  int64_t chunk, chunks;
  __device__ void operator()(int64_t r) const {
    out[r] =
        documents[r] < 0 ? documents[r] : static_cast<int32_t>(documents[r] * chunks + positions[r] / chunk);
  }
};

}  // namespace

template <class T>
void center(const T* x, T* y, int64_t rows, int64_t n, Stream stream) {
  each_row_by_warp(Center<T>{x, y, n}, rows, stream, "center");
}
template <class T>
void unit_norm(const T* x, T* y, int64_t rows, int64_t n, double eps, Stream stream) {
  each_row_by_warp(UnitNorm<T>{nullptr, x, y, n, static_cast<Stat<T>>(eps)}, rows, stream, "unit_norm");
}
template <class T>
void unit_norm_backward(const T* dy, const T* x, T* dx, int64_t rows, int64_t n, double eps, Stream stream) {
  each_row_by_warp(UnitNorm<T>{dy, x, dx, n, static_cast<Stat<T>>(eps)}, rows, stream, "unit_norm_backward");
}
template <class T>
void clip(const T* x, double limit, T* y, int64_t n, Stream stream) {
  each_element(Clip<T>{nullptr, x, static_cast<Stat<T>>(limit), y}, n, stream, "clip");
}
template <class T>
void clip_backward(const T* dy, const T* x, double limit, T* dx, int64_t n, Stream stream) {
  each_element(Clip<T>{dy, x, static_cast<Stat<T>>(limit), dx}, n, stream, "clip_backward");
}
template <class T>
void position_scale(const T* x, const int32_t* positions, T* y, int64_t rows, int64_t n, double scale,
                    int64_t floor, Stream stream) {
  each_row_by_warp(PositionScale<T>{x, positions, y, n, scale, floor}, rows, stream, "position_scale");
}
void split_documents(const int32_t* documents, const int32_t* positions, int32_t* out, int64_t rows,
                     int64_t chunk, int64_t seq_len, Stream stream) {
  each_element(SplitDocuments{documents, positions, out, chunk, seq_len / chunk + 1}, rows, stream,
               "split_documents");
}

#define INSTANTIATE(T)                                            \
  template decltype(center<T>) center<T>;                         \
  template decltype(unit_norm<T>) unit_norm<T>;                   \
  template decltype(unit_norm_backward<T>) unit_norm_backward<T>; \
  template decltype(clip<T>) clip<T>;                             \
  template decltype(clip_backward<T>) clip_backward<T>;           \
  template decltype(position_scale<T>) position_scale<T>;
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bf16)
INSTANTIATE(F16)
#undef INSTANTIATE

}  // namespace quintet::kernels::cuda
