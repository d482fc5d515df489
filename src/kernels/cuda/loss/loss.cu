#include <algorithm>

#include "kernels/cuda/loss/loss.cuh"
#include "kernels/cuda/loss/loss.h"
#include "kernels/cuda/reduce/reduce.h"

namespace quintet::kernels::cuda {
namespace {

// One block per row. Several blocks share an SM, so that one computes while another waits for memory, and a
// row that is read twice comes from the cache the second time. The long rows of large vocabularies would not:
// their blocks have an SM to themselves and keep as much of the row in its shared memory as fits.
inline constexpr int kThreads = 512, kSumBlocks = 3, kLongThreads = 1024;
inline constexpr int64_t kLongBytes = 128 << 10;
inline constexpr int kUnroll = 4;
inline constexpr int kTileThreads = 256;  // where a row needs no sum, each block has a tile of it

// The first vectors of a row in shared memory; each thread sees only what it stored itself.
template <class T, int V>
struct Kept {
  Pack<T, V>* data = nullptr;
  int packs = 0;
};

// Calls f(values) for the vectors of a row that hold valid columns, with columns past them as -inf.
template <int V, class T, class F>
__device__ __forceinline__ void visit(const T* x, int64_t valid, Kept<T, V> kept, F f) {
  const int columns = static_cast<int>(valid), packs = (columns + V - 1) / V,
            threads = static_cast<int>(blockDim.x);
  for (int i = static_cast<int>(threadIdx.x); i < packs; i += threads * kUnroll) {
    Pack<T, V> in[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      if (i + u * threads < packs) in[u] = fetch<V>(x + (i + u * threads) * V);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int pack = i + u * threads;
      if (pack >= packs) continue;
      if (pack < kept.packs) kept.data[pack] = in[u];
      auto v = values<T, V>(in[u]);
      mask_padding<V>(v, pack * V, columns);
      f(v);
    }
  }
}

template <class T>
__device__ Running<Stat<T>> block_merge(Running<Stat<T>> v, Running<Stat<T>>* shared) {
  const unsigned lane = threadIdx.x % 32;
  v = warp_merge<T>(v);
  if (lane == 0) shared[threadIdx.x / 32] = v;
  __syncthreads();
  v = lane < blockDim.x / 32 ? shared[lane] : Running<Stat<T>>{lowest<Stat<T>>(), 0};
  return warp_merge<T>(v);
}

template <class T, int V>
__global__ void __launch_bounds__(kThreads, kSumBlocks)
    max_kernel(const T* logits, int64_t columns, int64_t valid, Stat<T>* max) {
  await_previous();
  using S = Stat<T>;
  __shared__ S shared[32];
  S best = lowest<S>();
  visit<V>(logits + blockIdx.x * columns, valid, Kept<T, V>{}, [&](const auto& v) {
#pragma unroll
    for (int k = 0; k < V; ++k) best = MaxNan{}(v.v[k], best);
  });
  best = block_fold(best, shared, MaxNan{});
  if (threadIdx.x == 0) max[blockIdx.x] = best;
}

template <class T, int V>
__global__ void __launch_bounds__(kThreads, kSumBlocks)
    sumexp_kernel(const T* logits, int64_t columns, int64_t valid, int64_t vocab_begin, const int32_t* labels,
                  const Stat<T>* max, Stat<T>* sumexp, Stat<T>* target) {
  await_previous();
  using S = Stat<T>;
  __shared__ S shared[32];
  const int64_t r = blockIdx.x;
  const T* x = logits + r * columns;
  S of_label = 0;  // loaded during the sum
  if (threadIdx.x == 0) {
    const int column = local_column(labels[r], vocab_begin, valid);
    if (column >= 0) of_label = load<1>(x + column).v[0];
  }
  const S top = max[r];
  S sum = 0;
  visit<V>(x, valid, Kept<T, V>{}, [&](const auto& v) {
#pragma unroll
    for (int k = 0; k < V; ++k) sum += Math<T>::exp_less(v.v[k], top);
  });
  sum = block_fold(sum, shared, Plus{});
  if (threadIdx.x == 0) {
    sumexp[r] = sum;
    target[r] = of_label;
  }
}

// Loss and dlogits from known sums: a block has a tile of a row.
template <class T, int V>
__global__ void __launch_bounds__(kTileThreads) dlogits_kernel(Loss<T> a, unsigned tiles) {
  await_previous();
  using S = Stat<T>;
  const unsigned r = blockIdx.x / tiles, tile = blockIdx.x - r * tiles;
  T* const x = a.logits + static_cast<int64_t>(r) * a.columns;
  const int32_t label = a.labels[r];
  const S max = a.max[r], sumexp = a.sumexp[r];
  if (tile == 0 && threadIdx.x == 0) a.losses[r] = label >= 0 ? loss_of(max, sumexp, a.target[r]) : 0;
  if (!a.write_dlogits) return;
  const int first = static_cast<int>(tile * (kTileThreads * kUnroll) + threadIdx.x),
            packs = static_cast<int>(a.columns / V), valid = static_cast<int>(a.valid);
  Pack<T, V> in[kUnroll];
  if (label >= 0)
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int pack = first + u * kTileThreads;
      if (pack < packs) in[u] = fetch<V>(x + pack * V);
    }
  const S seed = static_cast<S>(*a.seed), factor = seed / sumexp;
  const int target = local_column(label, a.vocab_begin, a.valid);
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int pack = first + u * kTileThreads;
    if (pack >= packs) continue;
    Vals<S, V> v{};
    if (label >= 0) v = dlogits_of<T, V>(values<T, V>(in[u]), pack * V, valid, target, max, factor, seed);
    store<V>(x + pack * V, v);
  }
}

// Overwrites a row of logits with seed * (softmax - onehot). No other block reads the row any more.
template <int V, class T>
__device__ void write_dlogits_row(T* x, int columns, int valid, Kept<T, V> kept, int target,
                                  Running<Stat<T>> sums, Stat<T> seed) {
  const Stat<T> factor = seed / sums.sum;
  const int packs = columns / V, threads = static_cast<int>(blockDim.x);
  for (int i = static_cast<int>(threadIdx.x); i < packs; i += threads * kUnroll) {
    Pack<T, V> in[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int pack = i + u * threads;
      if (pack < packs) in[u] = pack < kept.packs ? kept.data[pack] : fetch<V>(x + pack * V);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int pack = i + u * threads;
      if (pack >= packs) continue;
      store<V>(x + pack * V,
               dlogits_of<T, V>(values<T, V>(in[u]), pack * V, valid, target, sums.max, factor, seed));
    }
  }
}

// Sums, loss and dlogits, for the whole vocabulary.
template <class T, int V, bool kLong>
__global__ void __launch_bounds__(kLong ? kLongThreads : kThreads, kLong ? 1 : 2)
    loss_kernel(Loss<T> a, int kept_packs) {
  await_previous();
  using S = Stat<T>;
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ Running<S> shared[32];
  Kept<T, V> kept;
  if constexpr (kLong) kept = {reinterpret_cast<Pack<T, V>*>(memory), kept_packs};
  const int64_t r = blockIdx.x;
  T* x = a.logits + r * a.columns;
  if (a.labels[r] < 0) {
    if (threadIdx.x == 0) a.losses[r] = 0;
    if (a.write_dlogits)
      for (int64_t i = static_cast<int64_t>(threadIdx.x) * V; i < a.columns; i += blockDim.x * V)
        store<V>(x + i, Vals<S, V>{});
    return;
  }
  const int column = local_column(a.labels[r], a.vocab_begin, a.valid);
  const S target = column >= 0 ? load<1>(static_cast<const T*>(x) + column).v[0] : S(0);
  Summing<T> summing;
  visit<V>(static_cast<const T*>(x), a.valid, kept, [&](const auto& v) { summing.add(v); });
  const Running<S> run = block_merge<T>(summing.running(), shared);
  if (threadIdx.x == 0) a.losses[r] = loss_of(run.max, run.sum, target);
  if (a.write_dlogits)
    write_dlogits_row<V>(x, static_cast<int>(a.columns), static_cast<int>(a.valid), kept, column, run,
                         static_cast<S>(*a.seed));
}

// Shared memory available to a block, less what the kernel declares statically.
int64_t most_shared_bytes() {
  int device = 0, bytes = 0;
  check(cudaGetDevice(&device), "cross_entropy");
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "cross_entropy");
  return bytes - 1024;
}

template <class T, int V>
void launch_whole(const Loss<T>& a, int64_t rows, Stream stream) {
  if constexpr (V > 1)
    if (cross_entropy_in_clusters<T>(a, rows, stream)) return;
  constexpr int64_t kPack = sizeof(Pack<T, V>);
  const auto blocks = static_cast<unsigned>(rows);
  // Vectors of valid columns only: the others are not read in the first pass.
  const int64_t row = a.valid / V * kPack;
  if (a.write_dlogits && row > kLongBytes) {
    const auto kernel = loss_kernel<T, V, true>;
    const int64_t room = most_shared_bytes(), packs = std::min(row, room) / kPack;
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(room)),
          "cross_entropy");
    kernel<<<blocks, kLongThreads, static_cast<size_t>(packs * kPack), stream>>>(a, static_cast<int>(packs));
  } else {
    loss_kernel<T, V, false><<<blocks, kThreads, 0, stream>>>(a, 0);
  }
  check_launch("cross_entropy");
}

template <class T, int V>
void launch_dlogits(const Loss<T>& a, int64_t rows, Stream stream) {
  const int64_t tiles = a.write_dlogits ? divide_up(a.columns / V, kTileThreads * kUnroll) : 1;
  dlogits_kernel<T, V>
      <<<static_cast<unsigned>(rows * tiles), kTileThreads, 0, stream>>>(a, static_cast<unsigned>(tiles));
  check_launch("cross_entropy_backward");
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
  const Loss<T> a{logits, columns, valid, vocab_begin,   labels, max,
                  sumexp, target,  seed,  write_dlogits, losses};
  if (rows > 0 && wide_rows(logits, columns))
    launch_dlogits<T, kWide<T>>(a, rows, stream);
  else if (rows > 0)
    launch_dlogits<T, 1>(a, rows, stream);
  sum(losses, rows, loss_sum, accumulate, stream);
}

template <class T>
void cross_entropy(T* logits, int64_t rows, int64_t columns, int64_t valid, const int32_t* labels,
                   const double* seed, bool write_dlogits, double* loss_sum, bool accumulate,
                   double* row_loss, void* workspace, Stream stream) {
  double* losses = row_loss != nullptr ? row_loss : static_cast<double*>(workspace);
  const Loss<T> a{logits, columns, valid, 0, labels, nullptr, nullptr, nullptr, seed, write_dlogits, losses};
  if (rows > 0 && wide_rows(logits, columns))
    launch_whole<T, kWide<T>>(a, rows, stream);
  else if (rows > 0)
    launch_whole<T, 1>(a, rows, stream);
  sum(losses, rows, loss_sum, accumulate, stream);
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
