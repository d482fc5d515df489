#include <math_constants.h>

#include "kernels/cuda/reduce/column_reduce.cuh"
#include "kernels/cuda/reduce/reduce.h"
#include "kernels/cuda/support/thread_group.cuh"

namespace quintet::kernels::cuda {
namespace {

inline constexpr int kThreads = 256, kFinishThreads = 1024;

struct Square {
  using Sum = double;
  template <class S>
  static __device__ __forceinline__ void add(double& sum, S x) {
    const double d = static_cast<double>(x);
    sum = fma(d, d, sum);
  }
};
// NaN counts as infinite: comparisons would lose it.
struct Largest {
  using Sum = double;
  template <class S>
  static __device__ __forceinline__ void add(double& largest, S x) {
    const double a = fabs(static_cast<double>(x));
    if (!(a <= largest)) largest = isnan(a) ? CUDART_INF : a;
  }
};
struct Max {
  __device__ __forceinline__ double operator()(double a, double b) const { return a > b ? a : b; }
};
struct NonFinite {
  using Sum = int32_t;
  template <class S>
  static __device__ __forceinline__ void add(int32_t& sum, S x) {
    sum |= !isfinite(x);
  }
};
struct Or {
  __device__ __forceinline__ int32_t operator()(int32_t a, int32_t b) const { return a | b; }
};

// The block's part of x[n]: chunk `chunk`.
template <class T, int V, class Rule, class Fold>
__device__ __forceinline__ void chunk_sum(const T* x, int64_t n, int64_t chunk, typename Rule::Sum* result,
                                          Fold fold) {
  using R = typename Rule::Sum;
  constexpr int kUnroll = 4;
  __shared__ R shared[32];
  const int64_t begin = chunk * kReduceChunk;
  const int64_t size = n - begin < kReduceChunk ? n - begin : kReduceChunk, packs = size / V;
  x += begin;
  R sum[kUnroll] = {};
  for (int64_t i = threadIdx.x; i < packs; i += kThreads * kUnroll) {
    Pack<T, V> in[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      if (i + u * kThreads < packs) in[u] = fetch<V>(x + (i + u * kThreads) * V);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (i + u * kThreads >= packs) continue;
      const auto v = values<T, V>(in[u]);
#pragma unroll
      for (int k = 0; k < V; ++k) Rule::add(sum[u], v.v[k]);
    }
  }
  const int64_t tail = packs * V + threadIdx.x;
  if (V > 1 && tail < size) Rule::add(sum[0], load<1>(x + tail).v[0]);
  const R all = block_fold(fold(fold(sum[0], sum[1]), fold(sum[2], sum[3])), shared, fold);
  if (threadIdx.x == 0) *result = all;
}

template <class T, int V, class Rule, class Fold>
__global__ void __launch_bounds__(kThreads)
    partial_kernel(const T* x, int64_t n, typename Rule::Sum* partial, Fold fold) {
  await_previous();
  chunk_sum<T, V, Rule>(x, n, blockIdx.x, partial + blockIdx.x, fold);
}

// Parts per launch, in its parameters.
inline constexpr int kParts = 128;
template <class T>
struct Parts {
  int count = 0;
  const T* x[kParts];
  int64_t size[kParts];
  unsigned block_end[kParts];
};

template <class Rule, class Fold, class T>
__global__ void __launch_bounds__(kThreads)
    parts_kernel(const __grid_constant__ Parts<T> parts, double* partial) {
  await_previous();
  const int part = part_of_block(parts, blockIdx.x);
  const int64_t chunk = blockIdx.x - (part > 0 ? parts.block_end[part - 1] : 0);
  const T* const x = parts.x[part];
  if (reinterpret_cast<uintptr_t>(x) % 16 == 0)
    chunk_sum<T, kWide<T>, Rule>(x, parts.size[part], chunk, partial + blockIdx.x, Fold{});
  else
    chunk_sum<T, 1, Rule>(x, parts.size[part], chunk, partial + blockIdx.x, Fold{});
}

template <class R, class Fold>
__global__ void __launch_bounds__(kFinishThreads)
    finish_kernel(const R* partial, int64_t count, R* out, bool accumulate, Fold fold) {
  await_previous();
  __shared__ R shared[32];
  R sum = 0;
#pragma unroll 8  // loads ahead of the sums that wait for them
  for (int64_t i = threadIdx.x; i < count; i += kFinishThreads) sum = fold(sum, partial[i]);
  sum = block_fold(sum, shared, fold);
  if (threadIdx.x == 0) *out = accumulate ? fold(*out, sum) : sum;
}

template <class T, class Rule, class Fold>
void reduce(const T* x, int64_t n, typename Rule::Sum* out, bool accumulate, void* workspace, Stream stream,
            const char* what) {
  using R = typename Rule::Sum;
  auto* partial = static_cast<R*>(workspace);
  const int64_t chunks = divide_up(n, kReduceChunk);
  const auto blocks = static_cast<unsigned>(chunks);
  if (chunks > 0) {
    if (aligned16(x))
      partial_kernel<T, kWide<T>, Rule><<<blocks, kThreads, 0, stream>>>(x, n, partial, Fold{});
    else
      partial_kernel<T, 1, Rule><<<blocks, kThreads, 0, stream>>>(x, n, partial, Fold{});
    check_launch(what);
  }
  finish_kernel<<<1, kFinishThreads, 0, stream>>>(static_cast<const R*>(partial), chunks, out, accumulate,
                                                  Fold{});
  check_launch(what);
}

template <class T>
struct Plain {
  static constexpr int kOut = 1;
  const T* dy;
  int64_t n;
  template <int V>
  __device__ void at(int64_t r, int64_t i, Vals<Stat<T>, V> (&out)[1]) const {
    out[0] = load<V>(dy + r * n + i);
  }
};

template <class Rule, class Fold, class T>
void reduce_parts(std::span<const std::span<const T>> parts, double* out, bool accumulate, void* workspace,
                  Stream stream, const char* what) {
  auto* const partial = static_cast<double*>(workspace);
  int64_t done = 0;
  Parts<T> some;
  const auto launch = [&] {
    if (some.count == 0) return;
    const unsigned blocks = some.block_end[some.count - 1];
    parts_kernel<Rule, Fold><<<blocks, kThreads, 0, stream>>>(some, partial + done);
    check_launch(what);
    done += blocks;
    some.count = 0;
  };
  for (const std::span<const T> part : parts) {
    if (part.empty()) continue;
    if (some.count == kParts) launch();
    const int i = some.count++;
    some.x[i] = part.data();
    some.size[i] = std::ssize(part);
    some.block_end[i] = (i > 0 ? some.block_end[i - 1] : 0) +
                        static_cast<unsigned>(divide_up(std::ssize(part), kReduceChunk));
  }
  launch();
  finish_kernel<<<1, kFinishThreads, 0, stream>>>(static_cast<const double*>(partial), done, out, accumulate,
                                                  Fold{});
  check_launch(what);
}

}  // namespace

template <class T>
void sum_squares(const T* x, int64_t n, double* out, bool accumulate, void* workspace, Stream stream) {
  reduce<T, Square, Plus>(x, n, out, accumulate, workspace, stream, "sum_squares");
}

template <class T>
void sum_squares(std::span<const std::span<const T>> parts, double* out, bool accumulate, void* workspace,
                 Stream stream) {
  reduce_parts<Square, Plus>(parts, out, accumulate, workspace, stream, "sum_squares");
}

template <class T>
void max_abs(std::span<const std::span<const T>> parts, double* out, bool accumulate, void* workspace,
             Stream stream) {
  reduce_parts<Largest, Max>(parts, out, accumulate, workspace, stream, "max_abs");
}

template <class T>
void any_nonfinite(const T* x, int64_t n, int32_t* out, bool accumulate, void* workspace, Stream stream) {
  reduce<T, NonFinite, Or>(x, n, out, accumulate, workspace, stream, "any_nonfinite");
}

template <class T, class D>
void column_sum(const T* dy, D* db, bool accumulate, int64_t rows, int64_t n, void* workspace,
                Stream stream) {
  auto* partial = static_cast<Stat<T>*>(workspace);
  column_partial<kWide<T>>(Plain<T>{dy, n}, rows, n, n % kWide<T> == 0 && aligned16(dy), partial, stream);
  column_total(static_cast<const Stat<T>*>(partial), column_chunks(rows, n), n, db, accumulate, stream);
}

void sum(const double* x, int64_t n, double* out, bool accumulate, Stream stream) {
  finish_kernel<<<1, kFinishThreads, 0, stream>>>(x, n, out, accumulate, Plus{});
  check_launch("sum");
}

#define INSTANTIATE(T)                                                                             \
  template void sum_squares<T>(const T*, int64_t, double*, bool, void*, Stream);                   \
  template void sum_squares<T>(std::span<const std::span<const T>>, double*, bool, void*, Stream); \
  template void max_abs<T>(std::span<const std::span<const T>>, double*, bool, void*, Stream);     \
  template decltype(any_nonfinite<T>) any_nonfinite<T>;
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bf16)
INSTANTIATE(F16)
#undef INSTANTIATE
template decltype(column_sum<double, double>) column_sum<double, double>;
template decltype(column_sum<float, float>) column_sum<float, float>;
template decltype(column_sum<Bf16, float>) column_sum<Bf16, float>;
template decltype(column_sum<F16, float>) column_sum<F16, float>;
template decltype(column_sum<Bf16, Bf16>) column_sum<Bf16, Bf16>;

}  // namespace quintet::kernels::cuda
