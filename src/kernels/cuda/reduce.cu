#include "kernels/cuda/column_reduce.cuh"
#include "kernels/cuda/group.cuh"
#include "kernels/cuda/reduce.h"

namespace quintet::kernels::cuda {
namespace {

inline constexpr int kThreads = 256, kFinishThreads = 1024;
inline constexpr int64_t kChunk = 32768;  // elements of one partial sum

struct Square {
  using Sum = double;
  template <class S>
  static __device__ __forceinline__ void add(double& sum, S x) {
    const double d = static_cast<double>(x);
    sum = fma(d, d, sum);
  }
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

template <class T, int V, class Rule, class Fold>
__global__ void __launch_bounds__(kThreads)
    partial_kernel(const T* x, int64_t n, typename Rule::Sum* partial, Fold fold) {
  using R = typename Rule::Sum;
  constexpr int kUnroll = 4;
  __shared__ R shared[32];
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kChunk;
  const int64_t size = n - begin < kChunk ? n - begin : kChunk, packs = size / V;
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
  if (threadIdx.x == 0) partial[blockIdx.x] = all;
}

template <class R, class Fold>
__global__ void __launch_bounds__(kFinishThreads)
    finish_kernel(const R* partial, int64_t count, R* out, bool accumulate, Fold fold) {
  __shared__ R shared[32];
  R sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kFinishThreads) sum = fold(sum, partial[i]);
  sum = block_fold(sum, shared, fold);
  if (threadIdx.x == 0) *out = accumulate ? fold(*out, sum) : sum;
}

template <class T, class Rule, class Fold>
void reduce(const T* x, int64_t n, typename Rule::Sum* out, bool accumulate, void* workspace, Stream stream,
            const char* what) {
  using R = typename Rule::Sum;
  auto* partial = static_cast<R*>(workspace);
  const int64_t chunks = divide_up(n, kChunk);
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

}  // namespace

int64_t reduce_workspace_bytes(int64_t n) {
  return divide_up(n, kChunk) * static_cast<int64_t>(sizeof(double));
}

template <class T>
void sum_squares(const T* x, int64_t n, double* out, bool accumulate, void* workspace, Stream stream) {
  reduce<T, Square, Plus>(x, n, out, accumulate, workspace, stream, "sum_squares");
}

template <class T>
void any_nonfinite(const T* x, int64_t n, int32_t* out, bool accumulate, void* workspace, Stream stream) {
  reduce<T, NonFinite, Or>(x, n, out, accumulate, workspace, stream, "any_nonfinite");
}

template <class T>
int64_t column_sum_workspace_bytes(int64_t rows, int64_t n) {
  return column_chunks(rows, n) * n * static_cast<int64_t>(sizeof(Stat<T>));
}

template <class T>
void column_sum(const T* dy, Grad<T>* db, bool accumulate, int64_t rows, int64_t n, void* workspace,
                Stream stream) {
  auto* partial = static_cast<Stat<T>*>(workspace);
  column_partial<kWide<T>>(Plain<T>{dy, n}, rows, n, n % kWide<T> == 0 && aligned16(dy), partial, stream);
  column_total(static_cast<const Stat<T>*>(partial), column_chunks(rows, n), n, db, accumulate, stream);
}

void sum(const double* x, int64_t n, double* out, bool accumulate, Stream stream) {
  finish_kernel<<<1, kFinishThreads, 0, stream>>>(x, n, out, accumulate, Plus{});
  check_launch("sum");
}

#define INSTANTIATE(T)                                                            \
  template decltype(sum_squares<T>) sum_squares<T>;                               \
  template decltype(any_nonfinite<T>) any_nonfinite<T>;                           \
  template decltype(column_sum_workspace_bytes<T>) column_sum_workspace_bytes<T>; \
  template decltype(column_sum<T>) column_sum<T>;
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bf16)
#undef INSTANTIATE

}  // namespace quintet::kernels::cuda
