#include "kernels/cpu/elementwise/rows.h"

#include <algorithm>
#include <cmath>

namespace quintet::kernels::cpu {
namespace {

// Rows, or elements, of a piece of parallel work.
int64_t grain(int64_t n) { return std::max<int64_t>(1, 16384 / std::max<int64_t>(n, 1)); }

template <class Body>
void each_row(int64_t rows, int64_t n, ThreadPool& pool, const Body& body) {
  pool.parallel_for(0, rows, grain(n), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) body(r);
  });
}

template <class S, class T>
S sum_of_squares(const T* x, int64_t n) {
  S sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<S>(x[i]) * static_cast<S>(x[i]);
  return sum;
}

}  // namespace

template <class T>
void center(const T* x, T* y, int64_t rows, int64_t n, ThreadPool& pool) {
  using S = Stat<T>;
  each_row(rows, n, pool, [&](int64_t r) {
    S sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += static_cast<S>(x[r * n + i]);
    const S mean = sum / static_cast<S>(n);
    for (int64_t i = 0; i < n; ++i) y[r * n + i] = static_cast<T>(static_cast<S>(x[r * n + i]) - mean);
  });
}

template <class T>
void unit_norm(const T* x, T* y, int64_t rows, int64_t n, double eps, ThreadPool& pool) {
  using S = Stat<T>;
  each_row(rows, n, pool, [&](int64_t r) {
    const S mean = sum_of_squares<S>(x + r * n, n) / static_cast<S>(n);
    const S factor = S(1) / std::sqrt(mean + static_cast<S>(eps));
    for (int64_t i = 0; i < n; ++i) y[r * n + i] = static_cast<T>(factor * static_cast<S>(x[r * n + i]));
  });
}

// dx = f (dy - x f^2 mean(dy x)) with f = 1 / sqrt(mean(x^2) + eps)
template <class T>
void unit_norm_backward(const T* dy, const T* x, T* dx, int64_t rows, int64_t n, double eps,
                        ThreadPool& pool) {
  using S = Stat<T>;
  each_row(rows, n, pool, [&](int64_t r) {
    const T *d = dy + r * n, *v = x + r * n;
    const S mean = sum_of_squares<S>(v, n) / static_cast<S>(n);
    const S factor = S(1) / std::sqrt(mean + static_cast<S>(eps));
    S dot = 0;
    for (int64_t i = 0; i < n; ++i) dot += static_cast<S>(d[i]) * static_cast<S>(v[i]);
    const S along = factor * factor * dot / static_cast<S>(n);
    for (int64_t i = 0; i < n; ++i)
      dx[r * n + i] = static_cast<T>(factor * (static_cast<S>(d[i]) - along * static_cast<S>(v[i])));
  });
}

template <class T>
void clip(const T* x, double limit, T* y, int64_t n, ThreadPool& pool) {
  using S = Stat<T>;
  const S most = static_cast<S>(limit);
  each_row(n, 1, pool, [&](int64_t i) {
    const S v = static_cast<S>(x[i]);
    y[i] = static_cast<T>(v > most ? most : v < -most ? -most : v);
  });
}

template <class T>
void clip_backward(const T* dy, const T* x, double limit, T* dx, int64_t n, ThreadPool& pool) {
  using S = Stat<T>;
  const S most = static_cast<S>(limit);
  each_row(n, 1, pool, [&](int64_t i) {
    const S v = static_cast<S>(x[i]);
    dx[i] = v > most || v < -most ? T(S(0)) : dy[i];
  });
}

template <class T>
void position_scale(const T* x, const int32_t* positions, T* y, int64_t rows, int64_t n, double scale,
                    int64_t floor, ThreadPool& pool) {
  using S = Stat<T>;
  each_row(rows, n, pool, [&](int64_t r) {
    const int64_t steps = (static_cast<int64_t>(positions[r]) + 1) / floor;
    const S factor = static_cast<S>(1 + scale * std::log1p(static_cast<double>(steps)));
    for (int64_t i = 0; i < n; ++i) y[r * n + i] = static_cast<T>(factor * static_cast<S>(x[r * n + i]));
  });
}

void split_documents(const int32_t* documents, const int32_t* positions, int32_t* out, int64_t rows,
                     int64_t chunk, int64_t seq_len, ThreadPool& pool) {
  const int64_t chunks = seq_len / chunk + 1;  // of one document, at most
  each_row(rows, 1, pool, [&](int64_t r) {
    out[r] =
        documents[r] < 0 ? documents[r] : static_cast<int32_t>(documents[r] * chunks + positions[r] / chunk);
  });
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

}  // namespace quintet::kernels::cpu
