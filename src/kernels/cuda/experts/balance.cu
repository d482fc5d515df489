#include "kernels/cuda/elementwise/each.cuh"
#include "kernels/cuda/experts/balance.h"
#include "kernels/cuda/support/row_order.cuh"
#include "kernels/cuda/support/thread_group.cuh"

namespace quintet::kernels::cuda {
namespace {

inline constexpr int kThreads = 256, kWarps = kThreads / 32;

__device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x % 32); }
__device__ __forceinline__ int warp() { return static_cast<int>(threadIdx.x / 32); }

template <class S>
__device__ __forceinline__ S log_sum_exp(const S* x, int64_t n) {
  S max = x[0];
  for (int64_t i = lane(); i < n; i += 32) max = x[i] > max ? x[i] : max;
  max = warp_fold(max, [](S a, S b) { return a > b ? a : b; });
  S sum = 0;
  for (int64_t i = lane(); i < n; i += 32) sum += Math<S>::exp(x[i] - max);
  return max + log(warp_fold(sum, Plus{}));
}

// Chunks of rows are short serial chains: many threads, each with several loads in flight.
inline constexpr int kChunkThreads = 1024;

// partial[chunk, experts + 2]. Counts are integers until the end, so their order does not matter.
template <class S>
__global__ void __launch_bounds__(kChunkThreads)
    load_kernel(int64_t rows, int64_t experts, int64_t k, const int32_t* chosen, const int32_t* kept,
                const S* scores, double* partial) {
  await_previous();
  constexpr int kAhead = 16;
  extern __shared__ int counts[];
  __shared__ double shared[32];
  const int64_t chunk = blockIdx.x, chunks = gridDim.x;
  const int64_t begin = rows * chunk / chunks, end = rows * (chunk + 1) / chunks;
  const auto read_scores = [&](int64_t first, S(&p)[kAhead]) {
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const int64_t i = first + u * kChunkThreads;
      p[u] = i < end * experts ? scores[i] : S(0);
    }
  };
  const int64_t first_score = begin * experts + threadIdx.x;
  S p[kAhead];
  read_scores(first_score, p);
  for (int64_t i = threadIdx.x; i <= experts; i += kChunkThreads) counts[i] = 0;
  __syncthreads();
  for (int64_t i = begin * k + threadIdx.x; i < end * k; i += kChunkThreads) {
    const int32_t expert = chosen[i], taken = kept[i];
    atomicAdd(&counts[expert], 1);
    if (taken < 0) atomicAdd(&counts[experts], 1);
  }
  double entropy = 0;
  for (int64_t i = first_score; i < end * experts; i += kAhead * kChunkThreads) {
    if (i > first_score) read_scores(i, p);
#pragma unroll
    for (int u = 0; u < kAhead; ++u)
      if (p[u] > 0) entropy -= static_cast<double>(p[u] * log(p[u]));
  }
  entropy = block_fold(entropy, shared, Plus{});
  double* const out = partial + chunk * (experts + 2);
  for (int64_t i = threadIdx.x; i <= experts; i += kChunkThreads) out[i] = counts[i];
  if (threadIdx.x == 0) out[experts + 1] = entropy;
}

// out[outer, n] = (or +=) the sum over chunks of partial[outer, chunks, n]. Each warp of a block sums a run
// of chunks, one column per lane; at the end the runs are added in order.
inline constexpr int kRunAhead = 16;
template <class S>
__global__ void __launch_bounds__(kThreads)
    chunks_kernel(const double* partial, int64_t outer, int64_t chunks, int64_t n, S* out, bool accumulate) {
  await_previous();
  __shared__ double runs[kWarps][32];
  const int64_t i = static_cast<int64_t>(blockIdx.x) * 32 + lane();
  const bool in = i < outer * n;
  const double* const first = partial + (in ? i / n * chunks * n + i % n : 0);
  const int64_t begin = chunks * warp() / kWarps, end = chunks * (warp() + 1) / kWarps;
  double total = 0;
  for (int64_t c = begin; c < end; c += kRunAhead) {
    double ahead[kRunAhead];
#pragma unroll
    for (int u = 0; u < kRunAhead; ++u) ahead[u] = in && c + u < end ? first[(c + u) * n] : 0.0;
#pragma unroll
    for (int u = 0; u < kRunAhead; ++u) total += ahead[u];
  }
  runs[warp()][lane()] = total;
  __syncthreads();
  if (warp() != 0 || !in) return;
#pragma unroll
  for (int w = 1; w < kWarps; ++w) total += runs[w][lane()];
  out[i] = static_cast<S>(accumulate ? static_cast<double>(out[i]) + total : total);
}

// partial[sequence, chunk, 2 * experts]
template <class S>
__global__ void __launch_bounds__(kThreads)
    sums_kernel(const __grid_constant__ WholeRows order, int64_t experts, int64_t k, const S* scores,
                const int32_t* chosen, double* partial) {
  await_previous();
  extern __shared__ int counts[];
  __shared__ double shared[kThreads];
  const int64_t chunk = blockIdx.x, chunks = gridDim.x, sequence = blockIdx.y;
  const int64_t begin = order.seq_len * chunk / chunks, end = order.seq_len * (chunk + 1) / chunks;
  for (int64_t i = threadIdx.x; i < experts; i += kThreads) counts[i] = 0;
  __syncthreads();
  for (int64_t i = begin * k + threadIdx.x; i < end * k; i += kThreads)
    atomicAdd(&counts[chosen[order.row(sequence, i / k) * k + i % k]], 1);
  __syncthreads();
  double* const out = partial + (sequence * chunks + chunk) * 2 * experts;
  // Adjacent threads have adjacent experts; spare threads split the rows into parts, added in order.
  constexpr int kAhead = 8;
  const int64_t width = experts < kThreads ? experts : kThreads, parts = kThreads / width;
  const int64_t part = threadIdx.x / width, rows = end - begin;
  const int64_t from = begin + rows * part / parts,
                to = part < parts ? begin + rows * (part + 1) / parts : from;
  for (int64_t first = 0; first < experts; first += width) {
    const int64_t e = first + threadIdx.x % width;
    double total = 0;
    for (int64_t p = from; p < to; p += kAhead) {
      S ahead[kAhead];
#pragma unroll
      for (int u = 0; u < kAhead; ++u)
        ahead[u] = e < experts && p + u < to ? scores[order.row(sequence, p + u) * experts + e] : S(0);
#pragma unroll
      for (int u = 0; u < kAhead; ++u) total += static_cast<double>(ahead[u]);
    }
    shared[threadIdx.x] = total;
    __syncthreads();
    if (part == 0 && e < experts) {
      for (int64_t other = 1; other < parts; ++other) total += shared[other * width + threadIdx.x];
      out[e] = counts[e];
      out[experts + e] = total;
    }
    __syncthreads();
  }
}

template <class S>
struct BalanceDx {
  WholeRows order;
  int64_t experts;
  const S* dsums;
  S* dscores;
  template <int V>
  __device__ Pack<S, V> load(int64_t r, int64_t i) const {
    return fetch<V>(dsums + (order.sequence_of(r) * 2 + 1) * experts + i);
  }
  template <int V>
  __device__ void store(int64_t r, int64_t i, Pack<S, V> in) const {
    put<V>(dscores + r * experts + i, in);
  }
};

template <class S>
__global__ void __launch_bounds__(kThreads) loss_kernel(BalanceLoss s, const S* sums, const double* running,
                                                        double* loss, bool accumulate, S* slope) {
  await_previous();
  __shared__ double shared[32];
  const double tokens = static_cast<double>(s.tokens);
  const double factor =
      s.coefficient / static_cast<double>(s.groups) * static_cast<double>(s.experts) / tokens;
  double assignments = static_cast<double>(s.k) * tokens;
  if (running != nullptr) {
    assignments = 0;
    for (int64_t i = threadIdx.x; i < s.experts; i += kThreads) assignments += running[i];
    assignments = block_fold(assignments, shared, Plus{});
  }
  double total = 0;
  for (int64_t at = threadIdx.x; at < s.groups_here * s.experts; at += kThreads) {
    const int64_t g = at / s.experts, i = at % s.experts;
    const S* group = sums + g * 2 * s.experts;
    S* out = slope + g * 2 * s.experts;
    const double count = running != nullptr ? running[i] : static_cast<double>(group[i]);
    const double share = assignments > 0 ? count / assignments : 0;
    total += factor * share * static_cast<double>(group[s.experts + i]);
    out[i] = S(0);
    out[s.experts + i] = static_cast<S>(factor * share);
  }
  total = block_fold(total, shared, Plus{});
  if (threadIdx.x == 0) *loss = accumulate ? *loss + total : total;
}

template <class S>
__global__ void __launch_bounds__(kChunkThreads)
    z_loss_kernel(const S* logits, int64_t rows, int64_t experts, double* partial) {
  await_previous();
  __shared__ double shared[32];
  const int64_t chunk = blockIdx.x, chunks = gridDim.x;
  const int64_t begin = rows * chunk / chunks, end = rows * (chunk + 1) / chunks;
  double sum = 0;
  for (int64_t r = begin + warp(); r < end; r += kChunkThreads / 32) {
    const double l = static_cast<double>(log_sum_exp(logits + r * experts, experts));
    if (lane() == 0) sum += l * l;
  }
  sum = block_fold(sum, shared, Plus{});
  if (threadIdx.x == 0) partial[chunk] = sum;
}
// A row of up to kLanes * kPer logits in the registers of kLanes lanes.
template <int kLanes, int kPer>
struct FewLogits {
  float z[kPer];

  static __device__ __forceinline__ int expert(int j) {
    return static_cast<int>(threadIdx.x) % kLanes + kLanes * j;
  }
  __device__ __forceinline__ void read(const float* row, int experts, bool there) {
#pragma unroll
    for (int j = 0; j < kPer; ++j) z[j] = there && expert(j) < experts ? row[expert(j)] : -HUGE_VALF;
  }
  template <class F>
  static __device__ __forceinline__ float fold(float v, const F& f) {
#pragma unroll
    for (int d = kLanes / 2; d > 0; d /= 2) v = f(v, __shfl_xor_sync(0xffffffffu, v, d));
    return v;
  }
  __device__ __forceinline__ float log_sum_exp(int experts) const {
    const auto larger = [](float a, float b) { return a > b ? a : b; };
    float max = z[0], total = 0;
#pragma unroll
    for (int j = 1; j < kPer; ++j) max = larger(z[j], max);
    max = fold(max, larger);
#pragma unroll
    for (int j = 0; j < kPer; ++j) total += expert(j) < experts ? Math<float>::exp(z[j] - max) : 0.0f;
    return max + log(fold(total, Plus{}));
  }
};

// kRows rows of every group of lanes are in flight at a time.
template <int kLanes, int kPer, int kRows>
__global__ void __launch_bounds__(kChunkThreads)
    z_loss_few_kernel(const float* logits, int64_t rows, int experts, double* partial) {
  await_previous();
  __shared__ double shared[32];
  constexpr int kGroups = kChunkThreads / kLanes;
  const int64_t chunk = blockIdx.x, chunks = gridDim.x;
  const int64_t begin = rows * chunk / chunks, end = rows * (chunk + 1) / chunks;
  double sum = 0;
  for (int64_t first = begin + threadIdx.x / kLanes; first - threadIdx.x / kLanes < end;
       first += kGroups * kRows) {
    FewLogits<kLanes, kPer> row[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      row[r].read(logits + (first + r * kGroups) * experts, experts, first + r * kGroups < end);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const auto l = static_cast<double>(row[r].log_sum_exp(experts));
      if (threadIdx.x % kLanes == 0 && first + r * kGroups < end) sum += l * l;
    }
  }
  sum = block_fold(sum, shared, Plus{});
  if (threadIdx.x == 0) partial[chunk] = sum;
}
template <int kLanes, int kPer, int kRows>
__global__ void __launch_bounds__(kThreads)
    z_loss_dx_few_kernel(const float* logits, int64_t rows, int experts, double coefficient,
                         const double* dloss, float* dlogits) {
  await_previous();
  constexpr int kGroups = kThreads / kLanes;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kGroups * kRows + threadIdx.x / kLanes;
  FewLogits<kLanes, kPer> row[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    row[r].read(logits + (first + r * kGroups) * experts, experts, first + r * kGroups < rows);
  const double twice = *dloss * coefficient * 2;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int64_t at = first + r * kGroups;
    const float l = row[r].log_sum_exp(experts), slope = static_cast<float>(twice * static_cast<double>(l));
#pragma unroll
    for (int j = 0; j < kPer; ++j) {
      const int e = row[r].expert(j);
      if (at < rows && e < experts) dlogits[at * experts + e] = slope * Math<float>::exp(row[r].z[j] - l);
    }
  }
}
// One warp.
__global__ void z_total_kernel(const double* partial, int64_t chunks, double coefficient, double* loss,
                               bool accumulate) {
  await_previous();
  double total = 0;
#pragma unroll 4
  for (int64_t c = lane(); c < chunks; c += 32) total += partial[c];
  total = warp_fold(total, Plus{});
  if (lane() == 0) *loss = accumulate ? *loss + coefficient * total : coefficient * total;
}

template <class S>
__global__ void __launch_bounds__(kThreads)
    z_loss_dx_kernel(const S* logits, int64_t rows, int64_t experts, double coefficient, const double* dloss,
                     S* dlogits) {
  await_previous();
  const int64_t r = static_cast<int64_t>(blockIdx.x) * kWarps + warp();
  if (r >= rows) return;
  const S* z = logits + r * experts;
  const S l = log_sum_exp(z, experts);
  const S slope = static_cast<S>(*dloss * coefficient * 2 * static_cast<double>(l));
  for (int64_t i = lane(); i < experts; i += 32) dlogits[r * experts + i] = slope * Math<S>::exp(z[i] - l);
}

template <class S>
__global__ void __launch_bounds__(kThreads)
    update_bias_kernel(const double* load, int64_t experts, double rate, const double* ok, S* bias) {
  await_previous();
  __shared__ double mean;
  if (*ok == 0) return;
  if (threadIdx.x == 0) {  // in the CPU's order: which side of the mean must not depend on rounding
    double sum = 0;
    for (int64_t i = 0; i < experts; ++i) sum += load[i];
    mean = sum / static_cast<double>(experts);
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < experts; i += kThreads)
    bias[i] += static_cast<S>(rate * ((mean > load[i]) - (mean < load[i])));
}

unsigned sum_blocks(int64_t sums) { return static_cast<unsigned>(divide_up(sums, 32)); }

// Calls f with the FewLogits that hold a row; false where a row is too long, or not float.
template <class S, class F>
bool with_few(int64_t experts, const F& f) {
  if (!std::is_same_v<S, float> || experts > 256) return false;
  if (experts <= 8)
    f(FewLogits<8, 1>{});
  else if (experts <= 32)
    f(FewLogits<32, 1>{});
  else if (experts <= 64)
    f(FewLogits<32, 2>{});
  else if (experts <= 128)
    f(FewLogits<32, 4>{});
  else
    f(FewLogits<32, 8>{});
  return true;
}

// Expert counts are kept in a block's shared memory.
size_t count_bytes(int64_t counts, const char* what) {
  if (counts > 12000)
    fail(std::string(what) + ": " + std::to_string(counts) + " experts, at most 12000 are supported");
  return static_cast<size_t>(counts) * sizeof(int);
}

}  // namespace

template <class S>
void expert_load(const LoadShape& s, const int32_t* chosen, const int32_t* kept, const S* scores,
                 double* load, bool accumulate, void* workspace, Stream stream) {
  const int64_t chunks = balance_chunks(s.rows), n = s.experts + 2;
  auto* const partial = static_cast<double*>(workspace);
  load_kernel<<<static_cast<unsigned>(chunks), kChunkThreads, count_bytes(s.experts + 1, "expert_load"),
                stream>>>(s.rows, s.experts, s.k, chosen, kept, scores, partial);
  check_launch("expert_load");
  chunks_kernel<<<sum_blocks(n), kThreads, 0, stream>>>(partial, int64_t{1}, chunks, n, load, accumulate);
  check_launch("expert_load");
}

template <class S>
void balance_sums(const base::RowOrder& order, int64_t experts, int64_t k, const S* scores,
                  const int32_t* chosen, S* sums, void* workspace, Stream stream) {
  if (order.sequences <= 0 || experts <= 0) return;
  const int64_t chunks = balance_chunks(order.seq_len), n = 2 * experts;
  auto* const partial = static_cast<double*>(workspace);
  const dim3 grid(static_cast<unsigned>(chunks), static_cast<unsigned>(order.sequences));
  sums_kernel<<<grid, kThreads, count_bytes(experts, "balance_sums"), stream>>>(WholeRows(order), experts, k,
                                                                                scores, chosen, partial);
  check_launch("balance_sums");
  chunks_kernel<<<sum_blocks(order.sequences * n), kThreads, 0, stream>>>(partial, order.sequences, chunks, n,
                                                                          sums, false);
  check_launch("balance_sums");
}

template <class S>
void balance_dx(const base::RowOrder& order, int64_t experts, const S* dsums, S* dscores, Stream stream) {
  each_row<kWide<S>, 1>(BalanceDx<S>{WholeRows(order), experts, dsums, dscores}, order.rows(), experts,
                        experts % kWide<S> == 0 && all_aligned16(dsums, dscores), stream, "balance_dx");
}

template <class S>
void balance_loss(const BalanceLoss& s, const S* sums, const double* running, double* loss, bool accumulate,
                  S* slope, Stream stream) {
  loss_kernel<<<1, kThreads, 0, stream>>>(s, sums, running, loss, accumulate, slope);
  check_launch("balance_loss");
}

template <class S>
void z_loss(const S* logits, int64_t rows, int64_t experts, double coefficient, double* loss, bool accumulate,
            void* workspace, Stream stream) {
  const int64_t chunks = balance_chunks(rows);
  auto* const partial = static_cast<double*>(workspace);
  const auto blocks = static_cast<unsigned>(chunks);
  const bool few = with_few<S>(experts, [&]<int kLanes, int kPer>(FewLogits<kLanes, kPer>) {
    if constexpr (std::is_same_v<S, float>)
      z_loss_few_kernel<kLanes, kPer, kLanes == 32 ? 4 : 1>
          <<<blocks, kChunkThreads, 0, stream>>>(logits, rows, static_cast<int>(experts), partial);
  });
  if (!few) z_loss_kernel<<<blocks, kChunkThreads, 0, stream>>>(logits, rows, experts, partial);
  check_launch("z_loss");
  z_total_kernel<<<1, 32, 0, stream>>>(partial, chunks, coefficient, loss, accumulate);
  check_launch("z_loss");
}

template <class S>
void z_loss_dx(const S* logits, int64_t rows, int64_t experts, double coefficient, const double* dloss,
               S* dlogits, Stream stream) {
  if (rows <= 0) return;
  const bool few = with_few<S>(experts, [&]<int kLanes, int kPer>(FewLogits<kLanes, kPer>) {
    constexpr int kRows = kPer <= 4 ? 2 : 1;
    const auto blocks = static_cast<unsigned>(divide_up(rows, kThreads / kLanes * kRows));
    if constexpr (std::is_same_v<S, float>)
      z_loss_dx_few_kernel<kLanes, kPer, kRows><<<blocks, kThreads, 0, stream>>>(
          logits, rows, static_cast<int>(experts), coefficient, dloss, dlogits);
  });
  if (!few)
    z_loss_dx_kernel<<<static_cast<unsigned>(divide_up(rows, kWarps)), kThreads, 0, stream>>>(
        logits, rows, experts, coefficient, dloss, dlogits);
  check_launch("z_loss_dx");
}

template <class S>
void update_bias(const double* load, int64_t experts, double rate, const double* ok, S* bias, Stream stream) {
  update_bias_kernel<<<1, kThreads, 0, stream>>>(load, experts, rate, ok, bias);
  check_launch("update_bias");
}

#define INSTANTIATE(S)                                \
  template decltype(expert_load<S>) expert_load<S>;   \
  template decltype(balance_sums<S>) balance_sums<S>; \
  template decltype(balance_dx<S>) balance_dx<S>;     \
  template decltype(balance_loss<S>) balance_loss<S>; \
  template decltype(z_loss<S>) z_loss<S>;             \
  template decltype(z_loss_dx<S>) z_loss_dx<S>;       \
  template decltype(update_bias<S>) update_bias<S>;
INSTANTIATE(double)
INSTANTIATE(float)
#undef INSTANTIATE

}  // namespace quintet::kernels::cuda
