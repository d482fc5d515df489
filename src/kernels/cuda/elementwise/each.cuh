// Loops over elements and over rows, with the loads of several vectors in flight before the first store.
//
// A body F has, for V elements at i (each_row: at row r, column i),
//   template <int V> auto load(int64_t i) const
//   template <int V> void store(int64_t i, loaded)
// A thread's loads precede its stores, and no two threads share an element, so a body's outputs may alias its
// inputs at the same position.
#pragma once

#include "kernels/cuda/support/launch.cuh"
#include "kernels/cuda/support/vector16.cuh"

namespace quintet::kernels::cuda {

inline constexpr int kEachThreads = 256;

template <int V, int U, class F>
__global__ void __launch_bounds__(kEachThreads) each_kernel(F f, int64_t n) {
  await_previous();
  const int64_t packs = n / V;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kEachThreads * U) + threadIdx.x;
  decltype(f.template load<V>(0)) loaded[U];
#pragma unroll
  for (int u = 0; u < U; ++u) {
    const int64_t at = first + u * kEachThreads;
    if (at < packs) loaded[u] = f.template load<V>(at * V);
  }
#pragma unroll
  for (int u = 0; u < U; ++u) {
    const int64_t at = first + u * kEachThreads;
    if (at < packs) f.template store<V>(at * V, loaded[u]);
  }
  if constexpr (V > 1) {
    const int64_t tail = packs * V + threadIdx.x;
    if (blockIdx.x == 0 && tail < n) f.template store<1>(tail, f.template load<1>(tail));
  }
}

// V elements at a time when `wide`, else one.
template <int V, int U, class F>
void each(const F& f, int64_t n, bool wide, Stream stream, const char* what) {
  if (n <= 0) return;
  const int64_t width = wide ? V : 1;
  const auto blocks = static_cast<unsigned>(divide_up(divide_up(n, width), int64_t{kEachThreads} * U));
  if (wide)
    each_kernel<V, U><<<blocks, kEachThreads, 0, stream>>>(f, n);
  else
    each_kernel<1, U><<<blocks, kEachThreads, 0, stream>>>(f, n);
  check_launch(what);
}

template <int V, int U, class F>
__global__ void __launch_bounds__(kEachThreads) each_row_kernel(F f, int64_t rows, int64_t n) {
  await_previous();
  const int64_t packs = n / V;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= packs) return;
  const int64_t step = static_cast<int64_t>(gridDim.y) * blockDim.y * U;
  for (int64_t r = (static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y) * U; r < rows; r += step) {
    decltype(f.template load<V>(0, 0)) loaded[U];
#pragma unroll
    for (int u = 0; u < U; ++u)
      if (r + u < rows) loaded[u] = f.template load<V>(r + u, column * V);
#pragma unroll
    for (int u = 0; u < U; ++u)
      if (r + u < rows) f.template store<V>(r + u, column * V, loaded[u]);
  }
}

// As each, over rows of n elements; `wide` requires n to be a multiple of V.
template <int V, int U, class F>
void each_row(const F& f, int64_t rows, int64_t n, bool wide, Stream stream, const char* what) {
  if (rows <= 0 || n <= 0) return;
  const int64_t packs = wide ? n / V : n;
  int64_t x = kEachThreads;
  while (x > 1 && x / 2 >= packs) x /= 2;
  const dim3 block(static_cast<unsigned>(x), static_cast<unsigned>(kEachThreads / x));
  const int64_t high = divide_up(rows, int64_t{block.y} * U);
  const dim3 grid(static_cast<unsigned>(divide_up(packs, x)),
                  static_cast<unsigned>(high < 65535 ? high : 65535));
  if (wide)
    each_row_kernel<V, U><<<grid, block, 0, stream>>>(f, rows, n);
  else
    each_row_kernel<1, U><<<grid, block, 0, stream>>>(f, rows, n);
  check_launch(what);
}

}  // namespace quintet::kernels::cuda
