// Sums over the rows of a matrix in two stages: chunks of rows into partial sums, then the chunks in order.
#pragma once

#include "kernels/cuda/support/launch.cuh"
#include "kernels/cuda/support/vector16.cuh"

namespace quintet::kernels::cuda {

inline constexpr int kColumnLanes = 32, kColumnRows = 8;

// A term provides kOut values per element:
//   template <int V> void at(int64_t r, int64_t i, Vals<S, V> (&out)[kOut])
// Their sums over a chunk of rows go to partial[(out * chunks + chunk) * n + column].
template <int V, class S, class Term>
__global__ void __launch_bounds__(kColumnLanes* kColumnRows)
    column_partial_kernel(Term term, int64_t rows, int64_t n, S* partial) {
  await_previous();
  constexpr int kOut = Term::kOut;
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * kColumnLanes + threadIdx.x) * V;
  const int64_t chunks = gridDim.y, chunk = blockIdx.y;
  const int64_t begin = rows * chunk / chunks, end = rows * (chunk + 1) / chunks;
  Vals<S, V> sum[kOut] = {};
  if (column < n) {
#pragma unroll 4
    for (int64_t r = begin + threadIdx.y; r < end; r += kColumnRows) {
      Vals<S, V> x[kOut];
      term.template at<V>(r, column, x);
#pragma unroll
      for (int o = 0; o < kOut; ++o)
#pragma unroll
        for (int k = 0; k < V; ++k) sum[o].v[k] += x[o].v[k];
    }
  }
  __shared__ Vals<S, V> shared[kColumnRows][kColumnLanes];
#pragma unroll
  for (int o = 0; o < kOut; ++o) {
    shared[threadIdx.y][threadIdx.x] = sum[o];
    __syncthreads();
    if (threadIdx.y == 0 && column < n) {
      Vals<S, V> all = sum[o];
      for (int y = 1; y < kColumnRows; ++y)
#pragma unroll
        for (int k = 0; k < V; ++k) all.v[k] += shared[y][threadIdx.x].v[k];
#pragma unroll
      for (int k = 0; k < V; ++k) partial[(o * chunks + chunk) * n + column + k] = all.v[k];
    }
    __syncthreads();
  }
}

template <class S, class D>
__global__ void __launch_bounds__(kColumnLanes* kColumnRows)
    column_total_kernel(const S* partial, int64_t chunks, int64_t n, D* out, bool accumulate) {
  await_previous();
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kColumnLanes + threadIdx.x;
  S sum = 0;
  if (column < n)
#pragma unroll 8
    for (int64_t c = threadIdx.y; c < chunks; c += kColumnRows) sum += partial[c * n + column];
  __shared__ S shared[kColumnRows][kColumnLanes];
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y == 0 && column < n) {
    for (int y = 1; y < kColumnRows; ++y) sum += shared[y][threadIdx.x];
    if (accumulate) sum += static_cast<S>(load<1>(out + column).v[0]);
    store<1>(out + column, Vals<Stat<D>, 1>{{static_cast<Stat<D>>(sum)}});
  }
}

// out[n] = (or +=) the sum over chunks of partial[chunks, n], rounded to D once.
template <class S, class D>
void column_total(const S* partial, int64_t chunks, int64_t n, D* out, bool accumulate, Stream stream) {
  if (n <= 0) return;
  column_total_kernel<<<static_cast<unsigned>(divide_up(n, kColumnLanes)), dim3(kColumnLanes, kColumnRows), 0,
                        stream>>>(partial, chunks, n, out, accumulate);
  check_launch("column_total");
}

// Fills partial[kOut, column_chunks(rows, n), n].
template <int V, class S, class Term>
void column_partial(const Term& term, int64_t rows, int64_t n, bool wide, S* partial, Stream stream) {
  if (n <= 0) return;
  const dim3 block(kColumnLanes, kColumnRows);
  const dim3 grid(static_cast<unsigned>(divide_up(n, (wide ? V : 1) * kColumnLanes)),
                  static_cast<unsigned>(column_chunks(rows, n)));
  if (wide)
    column_partial_kernel<V><<<grid, block, 0, stream>>>(term, rows, n, partial);
  else
    column_partial_kernel<1><<<grid, block, 0, stream>>>(term, rows, n, partial);
  check_launch("column_partial");
}

}  // namespace quintet::kernels::cuda
