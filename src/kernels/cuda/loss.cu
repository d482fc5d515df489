#include <algorithm>

#include "kernels/cuda/group.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/loss.h"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/reduce.h"

namespace quintet::kernels::cuda {
namespace {

// One block a row. Two blocks and more share an SM, so that one computes while another waits for memory, and
// a row that is read twice comes from the cache the second time. The long rows of large vocabularies would
// not: their blocks have an SM to themselves and keep as much of the row in its shared memory as goes in.
inline constexpr int kThreads = 512, kLongThreads = 1024;
inline constexpr int64_t kLongBytes = 128 << 10;
inline constexpr int kUnroll = 4;

template <class S>
__device__ __forceinline__ S lowest() {
  return -static_cast<S>(INFINITY);
}

// The local column of a label, or -1 when it is not among the valid columns here.
__device__ __forceinline__ int64_t local_column(int32_t label, int64_t vocab_begin, int64_t valid) {
  const int64_t column = label - vocab_begin;
  return label >= 0 && column >= 0 && column < valid ? column : -1;
}

// The first packs of a row in shared memory; each thread sees only what it put there itself.
template <class T, int V>
struct Kept {
  Pack<T, V>* data = nullptr;
  int packs = 0;
};

// Calls f(values, column) for the packs of a row that hold valid columns, columns beyond them as -inf.
template <int V, class T, class F>
__device__ __forceinline__ void visit(const T* x, int64_t valid, Kept<T, V> kept, F f) {
  using S = Stat<T>;
  const int packs = static_cast<int>((valid + V - 1) / V), threads = static_cast<int>(blockDim.x);
  for (int i = static_cast<int>(threadIdx.x); i < packs; i += threads * kUnroll) {
    Pack<T, V> in[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      if (i + u * threads < packs) in[u] = fetch<V>(x + (i + u * threads) * V);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int pack = i + u * threads, column = pack * V;
      if (pack >= packs) continue;
      if (pack < kept.packs) kept.data[pack] = in[u];
      auto v = values<T, V>(in[u]);
      if (column + V > valid)
#pragma unroll
        for (int k = 0; k < V; ++k)
          if (column + k >= valid) v.v[k] = lowest<S>();
      f(v, column);
    }
  }
}

template <class S>
struct Running {
  S max, sum;
};
// Running sums of two parts. An empty part has max -inf and sum 0.
template <class T>
struct Merge {
  __device__ __forceinline__ Running<Stat<T>> operator()(Running<Stat<T>> a, Running<Stat<T>> b) const {
    using S = Stat<T>;
    const S max = MaxNan{}(a.max, b.max);
    const S left = a.max == max ? a.sum : a.sum * Math<T>::exp(a.max - max);
    const S right = b.max == max ? b.sum : b.sum * Math<T>::exp(b.max - max);
    return {max, left + right};
  }
};

template <class T>
__device__ Running<Stat<T>> block_merge(Running<Stat<T>> v, Running<Stat<T>>* shared) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2)
    v = Merge<T>{}(v, {__shfl_xor_sync(0xffffffffu, v.max, d), __shfl_xor_sync(0xffffffffu, v.sum, d)});
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
  __syncthreads();
  v = shared[0];
  for (unsigned w = 1; w < blockDim.x / 32; ++w) v = Merge<T>{}(v, shared[w]);
  __syncthreads();
  return v;
}

template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    max_kernel(const T* logits, int64_t columns, int64_t valid, Stat<T>* max) {
  await_previous();
  using S = Stat<T>;
  __shared__ S shared[32];
  S best = lowest<S>();
  visit<V>(logits + blockIdx.x * columns, valid, Kept<T, V>{}, [&](const auto& v, int64_t) {
#pragma unroll
    for (int k = 0; k < V; ++k) best = MaxNan{}(v.v[k], best);
  });
  best = block_fold(best, shared, MaxNan{});
  if (threadIdx.x == 0) max[blockIdx.x] = best;
}

template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    sumexp_kernel(const T* logits, int64_t columns, int64_t valid, int64_t vocab_begin, const int32_t* labels,
                  const Stat<T>* max, Stat<T>* sumexp, Stat<T>* target) {
  await_previous();
  using S = Stat<T>;
  __shared__ S shared[32];
  const int64_t r = blockIdx.x;
  const T* x = logits + r * columns;
  const S top = max[r];
  S sum = 0;
  visit<V>(x, valid, Kept<T, V>{}, [&](const auto& v, int64_t) {
#pragma unroll
    for (int k = 0; k < V; ++k) sum += Math<T>::exp_less(v.v[k], top);
  });
  sum = block_fold(sum, shared, Plus{});
  if (threadIdx.x == 0) {
    const int64_t column = local_column(labels[r], vocab_begin, valid);
    sumexp[r] = sum;
    target[r] = column >= 0 ? load<1>(x + column).v[0] : S(0);
  }
}

template <int V, class T>
__device__ void zero_row(T* x, int64_t columns) {
  for (int64_t i = static_cast<int64_t>(threadIdx.x) * V; i < columns; i += blockDim.x * V)
    store<V>(x + i, Vals<Stat<T>, V>{});
}

// Overwrites a row of logits by seed * (softmax - onehot). Nobody else reads the row any more.
template <int V, class T>
__device__ void write_dlogits_row(T* x, int64_t columns, int64_t valid, Kept<T, V> kept, int64_t target,
                                  Stat<T> max, Stat<T> sumexp, double seed) {
  using S = Stat<T>;
  const S factor = S(seed / static_cast<double>(sumexp));
  const int packs = static_cast<int>(columns / V), threads = static_cast<int>(blockDim.x),
            target_pack = target >= 0 ? static_cast<int>(target / V) : -1;
  for (int i = static_cast<int>(threadIdx.x); i < packs; i += threads * kUnroll) {
    Pack<T, V> in[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int pack = i + u * threads;
      if (pack < packs) in[u] = pack < kept.packs ? kept.data[pack] : fetch<V>(x + pack * V);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int pack = i + u * threads, column = pack * V;
      if (pack >= packs) continue;
      auto v = values<T, V>(in[u]);
#pragma unroll
      for (int k = 0; k < V; ++k) v.v[k] = Math<T>::exp_less(v.v[k], max) * factor;
      if (pack == target_pack)
#pragma unroll
        for (int k = 0; k < V; ++k)
          if (column + k == target) v.v[k] -= S(seed);
      if (column + V > valid)
#pragma unroll
        for (int k = 0; k < V; ++k)
          if (column + k >= valid) v.v[k] = S(0);
      store<V>(x + column, v);
    }
  }
}

template <class S>
__device__ double loss_of(S max, S sumexp, S target) {
  return log(static_cast<double>(sumexp)) + (static_cast<double>(max) - static_cast<double>(target));
}

template <class T>
struct Loss {
  T* logits;
  int64_t columns, valid, vocab_begin;
  const int32_t* labels;
  const Stat<T>*max, *sumexp, *target;
  const double* seed;
  bool write_dlogits;
  double* losses;
};

// kWhole: max, sumexp and target are found here, in one reading of the row.
template <class T, int V, bool kWhole, bool kLong>
__global__ void __launch_bounds__(kLong ? kLongThreads : kThreads, kLong ? 1 : 2)
    loss_kernel(Loss<T> a, int kept_packs) {
  await_previous();
  using S = Stat<T>;
  extern __shared__ __align__(16) unsigned char memory[];
  Kept<T, V> kept;
  if constexpr (kLong) kept = {reinterpret_cast<Pack<T, V>*>(memory), kept_packs};
  const int64_t r = blockIdx.x;
  T* x = a.logits + r * a.columns;
  if (a.labels[r] < 0) {
    if (threadIdx.x == 0) a.losses[r] = 0;
    if (a.write_dlogits) zero_row<V>(x, a.columns);
    return;
  }
  const int64_t column = local_column(a.labels[r], a.vocab_begin, a.valid);
  S max, sumexp, target;
  if constexpr (kWhole) {
    __shared__ Running<S> shared[32];
    Running<S> run{lowest<S>(), S(0)};
    visit<V>(static_cast<const T*>(x), a.valid, kept, [&](const auto& v, int64_t) {
      S best = v.v[0];
#pragma unroll
      for (int k = 1; k < V; ++k) best = MaxNan{}(v.v[k], best);
      if (!(best <= run.max)) {
        run.sum = run.sum == S(0) ? S(0) : run.sum * Math<T>::exp(run.max - best);
        run.max = best;
      }
#pragma unroll
      for (int k = 0; k < V; ++k) run.sum += Math<T>::exp_less(v.v[k], run.max);
    });
    target = column >= 0 ? load<1>(static_cast<const T*>(x) + column).v[0] : S(0);
    run = block_merge<T>(run, shared);
    max = run.max;
    sumexp = run.sum;
  } else {
    max = a.max[r];
    sumexp = a.sumexp[r];
    target = a.target[r];
  }
  if (threadIdx.x == 0) a.losses[r] = loss_of(max, sumexp, target);
  if (a.write_dlogits) write_dlogits_row<V>(x, a.columns, a.valid, kept, column, max, sumexp, *a.seed);
}

// What a block may have of shared memory, less what the kernel declares itself.
int64_t most_shared_bytes() {
  int device = 0, bytes = 0;
  check(cudaGetDevice(&device), "cross_entropy");
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "cross_entropy");
  return bytes - 1024;
}

template <class T, int V, bool kWhole>
void launch_loss(const Loss<T>& a, int64_t rows, Stream stream) {
  constexpr int64_t kPack = sizeof(Pack<T, V>);
  const auto blocks = static_cast<unsigned>(rows);
  // Packs of valid columns only: the others are not read in the first visit.
  const int64_t row = a.valid / V * kPack;
  if (kWhole && a.write_dlogits && row > kLongBytes) {
    const auto kernel = loss_kernel<T, V, kWhole, true>;
    const int64_t room = most_shared_bytes(), packs = std::min(row, room) / kPack;
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(room)),
          "cross_entropy");
    kernel<<<blocks, kLongThreads, static_cast<size_t>(packs * kPack), stream>>>(a, static_cast<int>(packs));
  } else {
    loss_kernel<T, V, kWhole, false><<<blocks, kThreads, 0, stream>>>(a, 0);
  }
  check_launch("cross_entropy");
}

template <class T, bool kWhole>
void run_loss(const Loss<T>& a, int64_t rows, bool wide, double* loss_sum, bool accumulate, Stream stream) {
  if (rows > 0) {
    if (wide)
      launch_loss<T, kWide<T>, kWhole>(a, rows, stream);
    else
      launch_loss<T, 1, kWhole>(a, rows, stream);
  }
  sum(a.losses, rows, loss_sum, accumulate, stream);
}

template <class T>
bool wide_rows(const T* logits, int64_t columns) {
  return columns % kWide<T> == 0 && aligned16(logits);
}

}  // namespace

template <class T>
void row_max(const T* logits, int64_t rows, int64_t columns, int64_t valid, Stat<T>* max, Stream stream) {
  if (rows <= 0) return;
  const auto blocks = static_cast<unsigned>(rows);
  if (wide_rows(logits, columns))
    max_kernel<T, kWide<T>><<<blocks, kThreads, 0, stream>>>(logits, columns, valid, max);
  else
    max_kernel<T, 1><<<blocks, kThreads, 0, stream>>>(logits, columns, valid, max);
  check_launch("row_max");
}

template <class T>
void row_sumexp(const T* logits, int64_t rows, int64_t columns, int64_t valid, int64_t vocab_begin,
                const int32_t* labels, const Stat<T>* max, Stat<T>* sumexp, Stat<T>* target, Stream stream) {
  if (rows <= 0) return;
  const auto blocks = static_cast<unsigned>(rows);
  if (wide_rows(logits, columns))
    sumexp_kernel<T, kWide<T>>
        <<<blocks, kThreads, 0, stream>>>(logits, columns, valid, vocab_begin, labels, max, sumexp, target);
  else
    sumexp_kernel<T, 1>
        <<<blocks, kThreads, 0, stream>>>(logits, columns, valid, vocab_begin, labels, max, sumexp, target);
  check_launch("row_sumexp");
}

template <class T>
void cross_entropy_backward(T* logits, int64_t rows, int64_t columns, int64_t valid, int64_t vocab_begin,
                            const int32_t* labels, const Stat<T>* max, const Stat<T>* sumexp,
                            const Stat<T>* target, const double* seed, bool write_dlogits, double* loss_sum,
                            bool accumulate, double* row_loss, void* workspace, Stream stream) {
  double* losses = row_loss != nullptr ? row_loss : static_cast<double*>(workspace);
  run_loss<T, false>(
      {logits, columns, valid, vocab_begin, labels, max, sumexp, target, seed, write_dlogits, losses}, rows,
      wide_rows(logits, columns), loss_sum, accumulate, stream);
}

template <class T>
void cross_entropy(T* logits, int64_t rows, int64_t columns, int64_t valid, const int32_t* labels,
                   const double* seed, bool write_dlogits, double* loss_sum, bool accumulate,
                   double* row_loss, void* workspace, Stream stream) {
  double* losses = row_loss != nullptr ? row_loss : static_cast<double*>(workspace);
  run_loss<T, true>(
      {logits, columns, valid, 0, labels, nullptr, nullptr, nullptr, seed, write_dlogits, losses}, rows,
      wide_rows(logits, columns), loss_sum, accumulate, stream);
}

#define INSTANTIATE(T)                                                    \
  template decltype(row_max<T>) row_max<T>;                               \
  template decltype(row_sumexp<T>) row_sumexp<T>;                         \
  template decltype(cross_entropy_backward<T>) cross_entropy_backward<T>; \
  template decltype(cross_entropy<T>) cross_entropy<T>;
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bf16)
INSTANTIATE(F16)
#undef INSTANTIATE

}  // namespace quintet::kernels::cuda
