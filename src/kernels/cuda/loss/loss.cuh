// Shared by the loss kernels. Column indices of a row are int.
#pragma once

#include "kernels/cuda/support/launch.cuh"
#include "kernels/cuda/support/thread_group.cuh"
#include "kernels/cuda/support/vector16.cuh"

namespace quintet::kernels::cuda {

template <class T>
struct Loss {
  T* logits;
  int64_t columns, valid, vocab_begin;
  const int32_t* labels;
  const Stat<T>*max, *sumexp, *target;  // null where the whole vocabulary is local
  const double* seed;
  bool write_dlogits;
  double* losses;
};

// cross_entropy of long rows with write_dlogits, on GPUs with thread block clusters (Hopper on): every row is
// read once and stays in shared memory until its gradient is written. False, with nothing launched, where the
// GPU or the row length does not allow it. Rows begin at multiples of 16 bytes.
template <class T>
bool cross_entropy_in_clusters(const Loss<T>& a, int64_t rows, Stream stream);

template <class S>
__device__ __forceinline__ S lowest() {
  return -static_cast<S>(INFINITY);
}

// The local column of a label, or -1 when it is not among the valid local columns.
__device__ __forceinline__ int local_column(int32_t label, int64_t vocab_begin, int64_t valid) {
  const int64_t column = label - vocab_begin;
  return label >= 0 && column >= 0 && column < valid ? static_cast<int>(column) : -1;
}

// The largest of some logits, and the sum of exp(logit - max). Empty: -inf and 0.
template <class S>
struct Running {
  S max, sum;
};

// The same, updated by vectors. While all were -inf, exponentials are taken of the logits themselves: 0.
template <class T>
struct Summing {
  using S = Stat<T>;
  S max = lowest<S>(), base = 0, sum = 0;

  template <int V>
  __device__ __forceinline__ void add(const Vals<S, V>& v) {
    S best = v.v[0];
#pragma unroll
    for (int k = 1; k < V; ++k) best = MaxNan{}(v.v[k], best);
    if (!(best <= max)) {
      sum = sum == S(0) ? S(0) : sum * Math<T>::exp(base - best);
      max = base = best;
    }
    S more = Math<T>::exp_less(v.v[0], base);
#pragma unroll
    for (int k = 1; k < V; ++k) more += Math<T>::exp_less(v.v[k], base);
    sum += more;
  }
  __device__ __forceinline__ Running<S> running() const { return {max, sum}; }
};

// Over the lanes of a warp: a fixed tree.
template <class T>
__device__ __forceinline__ Running<Stat<T>> warp_merge(Running<Stat<T>> run) {
  const auto max = warp_fold(run.max, MaxNan{});
  const auto sum = run.max == max ? run.sum : run.sum * Math<T>::exp(run.max - max);
  return {max, warp_fold(sum, Plus{})};
}
// Merges two parts.
template <class T>
__device__ __forceinline__ Running<Stat<T>> merge(Running<Stat<T>> a, Running<Stat<T>> b) {
  const auto max = MaxNan{}(a.max, b.max);
  const auto left = a.max == max ? a.sum : a.sum * Math<T>::exp(a.max - max);
  const auto right = b.max == max ? b.sum : b.sum * Math<T>::exp(b.max - max);
  return {max, left + right};
}

// Columns past the valid ones as -inf.
template <int V, class S>
__device__ __forceinline__ void mask_padding(Vals<S, V>& v, int column, int valid) {
  if (column + V > valid)
#pragma unroll
    for (int k = 0; k < V; ++k)
      if (column + k >= valid) v.v[k] = lowest<S>();
}

// What is added to seed * softmax in the columns from `column` on: -seed at the label, nothing past the valid
// ones.
template <class T, int V>
__device__ __forceinline__ void finish_dlogits(Vals<Stat<T>, V>& v, int column, int valid, int target,
                                               Stat<T> seed) {
#pragma unroll
  for (int k = 0; k < V; ++k) {
    if (column + k == target) v.v[k] -= seed;
    if (column + k >= valid) v.v[k] = 0;
  }
}
// dlogits of the V columns from `column` on: factor is seed / sumexp.
template <class T, int V>
__device__ __forceinline__ Vals<Stat<T>, V> dlogits_of(Vals<Stat<T>, V> v, int column, int valid, int target,
                                                       Stat<T> max, Stat<T> factor, Stat<T> seed) {
#pragma unroll
  for (int k = 0; k < V; ++k) v.v[k] = Math<T>::exp_less(v.v[k], max) * factor;
  if (static_cast<unsigned>(target - column) < static_cast<unsigned>(V) || column + V > valid)
    finish_dlogits<T, V>(v, column, valid, target, seed);
  return v;
}

template <class S>
__device__ __forceinline__ double loss_of(S max, S sumexp, S target) {
  return log(static_cast<double>(sumexp)) + (static_cast<double>(max) - static_cast<double>(target));
}

}  // namespace quintet::kernels::cuda
