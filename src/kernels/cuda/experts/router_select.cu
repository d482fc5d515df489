// One warp per row. Its keys are in registers where they fit, otherwise they and their marks are in shared
// memory.
#include "kernels/cuda/experts/router_select.h"
#include "kernels/cuda/support/launch.cuh"
#include "kernels/cuda/support/thread_group.cuh"
#include "kernels/cuda/support/vector16.cuh"

namespace quintet::kernels::cuda {
namespace {

inline constexpr int kWarps = 4, kThreads = kWarps * 32;

// The part of SelectShape that kernels read.
struct Shape {
  int64_t rows;
  int experts, k, groups, groups_kept;
  int64_t route_columns, route_column;
  Score score;
  bool top_k_first, normalise;
  double scale;

  explicit Shape(const SelectShape& s)
      : rows(s.rows),
        experts(static_cast<int>(s.experts)),
        k(static_cast<int>(s.k)),
        groups(static_cast<int>(s.groups)),
        groups_kept(static_cast<int>(s.groups_kept)),
        route_columns(s.route_columns),
        route_column(s.route_column),
        score(s.score),
        top_k_first(s.top_k_first),
        normalise(s.normalise),
        scale(s.scale) {}
};

__device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x % 32); }

struct Larger {
  template <class S>
  __device__ __forceinline__ S operator()(S a, S b) const {
    return a > b ? a : b;
  }
};

template <class S>
__device__ __forceinline__ S sigmoid(S x) {
  return S(1) / (S(1) + Math<S>::exp(-x));
}
template <class S>
__device__ __forceinline__ S sqrt_softplus(S x) {
  return sqrt((x > S(0) ? x : S(0)) + log1p(Math<S>::exp(x > S(0) ? -x : x)));
}
// The score of a logit on its own: sigmoid or sqrt(softplus).
template <class S>
__device__ __forceinline__ S single_score(Score score, S x) {
  return score == Score::Sigmoid ? sigmoid(x) : sqrt_softplus(x);
}
// Its derivative from its value p. Of the second, sigmoid(x) = 1 - exp(-p^2).
template <class S>
__device__ __forceinline__ S single_slope(Score score, S p) {
  if (score == Score::Sigmoid) return p * (1 - p);
  return p > S(0) ? -expm1(-p * p) / (2 * p) : S(0);
}

// f(i) summed over i < n by the lanes of a warp.
template <class S, class F>
__device__ __forceinline__ S warp_sum(int n, const F& f) {
  S sum = 0;
  for (int i = lane(); i < n; i += 32) sum += f(i);
  return warp_fold(sum, Plus{});
}

// y = softmax(x); y may be x. Lanes touch only their own elements.
template <class S>
__device__ __forceinline__ void softmax(const S* x, S* y, int n) {
  S max = x[0];
  for (int i = lane(); i < n; i += 32) max = Larger{}(x[i], max);
  max = warp_fold(max, Larger{});
  S sum = 0;
  for (int i = lane(); i < n; i += 32) sum += y[i] = Math<S>::exp(x[i] - max);
  sum = warp_fold(sum, Plus{});
  for (int i = lane(); i < n; i += 32) y[i] /= sum;
}

// Whether (a, i) precedes (b, j): the larger key, then the lower index, NaN last. An index of -1 means
// none.
template <class S>
__device__ __forceinline__ bool before(S a, int i, S b, int j) {
  if (j < 0) return i >= 0;
  if (i < 0) return false;
  const bool a_number = a == a, b_number = b == b;
  if (a_number != b_number) return a_number;
  if (a_number && a != b) return a > b;
  return i < j;
}

// The best key not yet taken, the same in all lanes.
template <class S>
__device__ __forceinline__ int best_of_warp(const S* keys, const uint8_t* taken, int n) {
  S key = 0;
  int at = -1;
  for (int i = lane(); i < n; i += 32)
    if (!taken[i] && before(keys[i], i, key, at)) {
      key = keys[i];
      at = i;
    }
#pragma unroll
  for (int d = 16; d > 0; d /= 2) {
    const S other = __shfl_xor_sync(0xffffffffu, key, d);
    const int other_at = __shfl_xor_sync(0xffffffffu, at, d);
    if (before(other, other_at, key, at)) {
      key = other;
      at = other_at;
    }
  }
  return at;
}
// The same by one lane.
template <class S>
__device__ __forceinline__ int best_of_lane(const S* keys, const uint8_t* taken, int n, int without) {
  int at = -1;
  for (int i = 0; i < n; ++i)
    if (!taken[i] && i != without && (at < 0 || before(keys[i], i, keys[at], at))) at = i;
  return at;
}

template <class S>
struct Scratch {
  S *keys, *group_keys;
  uint8_t *taken, *group_taken;

  static __host__ __device__ int64_t bytes(int experts, int groups) {
    return ((experts + groups) * static_cast<int64_t>(sizeof(S) + 1) + 15) / 16 * 16;
  }
  __device__ Scratch(const Shape& s, unsigned char* memory)
      : keys(reinterpret_cast<S*>(memory)),
        group_keys(keys + s.experts),
        taken(reinterpret_cast<uint8_t*>(group_keys + s.groups)),
        group_taken(taken + s.experts) {}
};

// Excludes the experts of all but the best groups.
template <class S>
__device__ void keep_groups(const Shape& s, bool biased, const Scratch<S>& scratch) {
  const int size = s.experts / s.groups;
  for (int g = lane(); g < s.groups; g += 32) {
    const S* keys = scratch.keys + g * size;
    const uint8_t* taken = scratch.taken + g * size;
    const int first = best_of_lane(keys, taken, size, -1);
    S key = keys[first];
    if (biased && size > 1) key += keys[best_of_lane(keys, taken, size, first)];
    scratch.group_keys[g] = key;
    scratch.group_taken[g] = 0;
  }
  __syncwarp();
  for (int i = 0; i < s.groups_kept; ++i) {
    const int g = best_of_warp(scratch.group_keys, scratch.group_taken, s.groups);
    __syncwarp();
    if (lane() == 0) scratch.group_taken[g] = 1;
    __syncwarp();
  }
  for (int i = lane(); i < s.experts; i += 32)
    if (!scratch.group_taken[i / size]) scratch.taken[i] = 1;
  __syncwarp();
}

template <class S>
__global__ void __launch_bounds__(kThreads)
    select_kernel(const __grid_constant__ Shape s, const S* logits, const S* bias, const int32_t* given,
                  S* scores, int32_t* chosen, S* weights) {
  await_previous();
  extern __shared__ __align__(16) unsigned char memory[];
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (row >= s.rows) return;
  const Scratch<S> scratch(s, memory + threadIdx.x / 32 * Scratch<S>::bytes(s.experts, s.groups));
  const S* z = logits + row * s.experts;
  S *p = scores + row * s.experts, *w = weights + row * s.k;
  int32_t* c = chosen + row * s.k;
  if (s.score != Score::Softmax)
    for (int i = lane(); i < s.experts; i += 32) p[i] = single_score(s.score, z[i]);
  else
    softmax(z, p, s.experts);
  const int32_t* const route = s.route_columns > 0 ? given + row * s.route_columns + s.route_column : nullptr;
  if (route != nullptr && route[0] > 0) {
    for (int j = lane(); j < s.k; j += 32) c[j] = route[j] - 1;
  } else if (route == nullptr && given != nullptr) {
    for (int j = lane(); j < s.k; j += 32)
      c[j] = static_cast<int32_t>((static_cast<int64_t>(given[row]) * s.k + j) % s.experts);
  } else {
    for (int i = lane(); i < s.experts; i += 32) {
      const S key = s.top_k_first ? z[i] : p[i];
      scratch.keys[i] = bias != nullptr ? key + bias[i] : key;
      scratch.taken[i] = 0;
    }
    __syncwarp();
    if (s.groups_kept < s.groups) keep_groups(s, bias != nullptr, scratch);
    for (int j = 0; j < s.k; ++j) {
      const int at = best_of_warp(scratch.keys, scratch.taken, s.experts);
      __syncwarp();
      if (lane() == 0) {
        scratch.taken[at] = 1;
        c[j] = at;
      }
      __syncwarp();
    }
  }
  __syncwarp();
  for (int j = lane(); j < s.k; j += 32) w[j] = (s.top_k_first ? z : p)[c[j]];
  __syncwarp();
  if (s.top_k_first) softmax(w, w, s.k);
  const S divisor =
      s.normalise ? warp_sum<S>(s.k, [&](int j) { return w[j]; }) + static_cast<S>(kSmallest) : S(1);
  for (int j = lane(); j < s.k; j += 32) w[j] = w[j] / divisor * static_cast<S>(s.scale);
  if (s.score != Score::Softmax) {
    __syncwarp();  // other lanes' scores became weights above
    const S sum = warp_sum<S>(s.experts, [&](int i) { return p[i]; }) + static_cast<S>(kSmallest);
    for (int i = lane(); i < s.experts; i += 32) p[i] /= sum;
  }
}

// Orders keys as `before` does: 0 means none, 1 is NaN, below all numbers.
__device__ __forceinline__ uint32_t rank_of(float key) {
  if (key != key) return 1;
  const uint32_t bits = __float_as_uint(key + 0.0f);  // -0 becomes 0
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// p = the scores of z, zero past the experts; lane l has the experts l, l + 32, ...
template <int kPer>
__device__ __forceinline__ void few_scores(const Shape& s, const float (&z)[kPer], float (&p)[kPer]) {
  const auto in = [&](int j) { return lane() + 32 * j < s.experts; };
  if (s.score != Score::Softmax) {
#pragma unroll
    for (int j = 0; j < kPer; ++j) p[j] = in(j) ? single_score(s.score, z[j]) : 0.0f;
    return;
  }
  float max = __shfl_sync(0xffffffffu, z[0], 0), total = 0;
#pragma unroll
  for (int j = 0; j < kPer; ++j) max = in(j) ? Larger{}(z[j], max) : max;
  max = warp_fold(max, Larger{});
#pragma unroll
  for (int j = 0; j < kPer; ++j) total += p[j] = in(j) ? Math<float>::exp(z[j] - max) : 0.0f;
  total = warp_fold(total, Plus{});
#pragma unroll
  for (int j = 0; j < kPer; ++j) p[j] /= total;
}
// softmax over the first n >= 1 lanes; zero in the others.
__device__ __forceinline__ float softmax_of_lanes(float x, int n) {
  const float first = __shfl_sync(0xffffffffu, x, 0);
  const float max = warp_fold(lane() < n ? Larger{}(x, first) : first, Larger{});
  const float y = lane() < n ? Math<float>::exp(x - max) : 0.0f;
  return y / warp_fold(y, Plus{});
}
// The weight of a lane's choice before normalising; zero in lanes without one.
template <int kPer>
__device__ __forceinline__ float few_weight(const Shape& s, const float (&z)[kPer], const float (&p)[kPer],
                                            int choice) {
  float weight = 0;
#pragma unroll
  for (int j = 0; j < kPer; ++j) {
    const float v = __shfl_sync(0xffffffffu, s.top_k_first ? z[j] : p[j], choice % 32);
    if (lane() < s.k && choice / 32 == j) weight = v;
  }
  return s.top_k_first ? softmax_of_lanes(weight, s.k) : weight;
}

// The same for up to 32 * kPer experts in one group, of which a row chooses at most 32: lane l has the
// experts l, l + 32, ..., and the row's l-th choice.
template <int kPer>
__global__ void __launch_bounds__(kThreads)
    select_few_kernel(const __grid_constant__ Shape s, const float* logits, const float* bias, float* scores,
                      int32_t* chosen, float* weights) {
  await_previous();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (row >= s.rows) return;
  constexpr unsigned kAll = 0xffffffffu;
  const int me = lane();
  const auto in = [&](int j) { return me + 32 * j < s.experts; };
  float z[kPer], p[kPer];
#pragma unroll
  for (int j = 0; j < kPer; ++j) z[j] = in(j) ? logits[row * s.experts + me + 32 * j] : 0.0f;
  few_scores(s, z, p);
  uint32_t rank[kPer];
#pragma unroll
  for (int j = 0; j < kPer; ++j) {
    const float key = s.top_k_first ? z[j] : p[j];
    rank[j] = in(j) ? rank_of(bias != nullptr ? key + bias[me + 32 * j] : key) : 0;
  }
  int choice = 0;
  for (int c = 0; c < s.k; ++c) {
    uint32_t best = rank[0];
#pragma unroll
    for (int j = 1; j < kPer; ++j) best = rank[j] > best ? rank[j] : best;
    best = __reduce_max_sync(kAll, best);
    unsigned at = kAll;  // ties: the lowest
#pragma unroll
    for (int j = kPer - 1; j >= 0; --j)
      if (rank[j] == best) at = static_cast<unsigned>(me + 32 * j);
    at = __reduce_min_sync(kAll, at);
#pragma unroll
    for (int j = 0; j < kPer; ++j)
      if (at == static_cast<unsigned>(me + 32 * j)) rank[j] = 0;
    if (me == c) choice = static_cast<int>(at);
  }
  const float weight = few_weight(s, z, p, choice);
  const float divisor = s.normalise ? warp_fold(weight, Plus{}) + static_cast<float>(kSmallest) : 1.0f;
  if (me < s.k) {
    chosen[row * s.k + me] = choice;
    weights[row * s.k + me] = weight / divisor * static_cast<float>(s.scale);
  }
  float sum = 1;
  if (s.score != Score::Softmax) {
    float total = 0;
#pragma unroll
    for (int j = 0; j < kPer; ++j) total += p[j];
    sum = warp_fold(total, Plus{}) + static_cast<float>(kSmallest);
  }
#pragma unroll
  for (int j = 0; j < kPer; ++j)
    if (in(j)) scores[row * s.experts + me + 32 * j] = s.score != Score::Softmax ? p[j] / sum : p[j];
}

template <class S>
__global__ void __launch_bounds__(kThreads)
    select_dx_kernel(const __grid_constant__ Shape s, const S* logits, const int32_t* chosen,
                     const S* dweights, const S* dscores, S* dlogits) {
  await_previous();
  extern __shared__ __align__(16) unsigned char memory[];
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (row >= s.rows) return;
  const int n = s.experts, k = s.k;
  // Scores; gradient of the scores, later of the logits; weights before normalising; their gradients.
  S* const p = reinterpret_cast<S*>(memory) + threadIdx.x / 32 * (2 * n + 2 * k);
  S *const g = p + n, *const u = g + n, *const du = u + k;
  const S* z = logits + row * n;
  const int32_t* c = chosen + row * k;
  if (s.score != Score::Softmax)
    for (int i = lane(); i < n; i += 32) p[i] = single_score(s.score, z[i]);
  else
    softmax(z, p, n);
  for (int i = lane(); i < n; i += 32) g[i] = dscores != nullptr ? dscores[row * n + i] : S(0);
  __syncwarp();
  if (s.score != Score::Softmax && dscores != nullptr) {  // through the division by the row's sum
    const S sum = warp_sum<S>(n, [&](int i) { return p[i]; }) + static_cast<S>(kSmallest);
    const S mean = warp_sum<S>(n, [&](int i) { return g[i] * p[i]; }) / sum;
    for (int i = lane(); i < n; i += 32) g[i] = (g[i] - mean) / sum;
  }
  if (dweights != nullptr) {
    for (int j = lane(); j < k; j += 32) {
      u[j] = (s.top_k_first ? z : p)[c[j]];
      du[j] = dweights[row * k + j] * static_cast<S>(s.scale);
    }
    __syncwarp();
    if (s.top_k_first) softmax(u, u, k);
    if (s.normalise) {
      const S sum = warp_sum<S>(k, [&](int j) { return u[j]; }) + static_cast<S>(kSmallest);
      const S mean = warp_sum<S>(k, [&](int j) { return du[j] * u[j]; }) / sum;
      for (int j = lane(); j < k; j += 32) du[j] = (du[j] - mean) / sum;
    }
    __syncwarp();
    // The choices of a row are distinct, unless forced balance has fewer experts than choices.
    if (!s.top_k_first && lane() == 0)
      for (int j = 0; j < k; ++j) g[c[j]] += du[j];
    __syncwarp();
  }
  if (s.score != Score::Softmax) {
    for (int i = lane(); i < n; i += 32) g[i] *= single_slope(s.score, p[i]);
  } else {
    const S mean = warp_sum<S>(n, [&](int i) { return g[i] * p[i]; });
    for (int i = lane(); i < n; i += 32) g[i] = p[i] * (g[i] - mean);
  }
  __syncwarp();
  if (dweights != nullptr && s.top_k_first) {
    const S mean = warp_sum<S>(k, [&](int j) { return du[j] * u[j]; });
    if (lane() == 0)
      for (int j = 0; j < k; ++j) g[c[j]] += u[j] * (du[j] - mean);
    __syncwarp();
  }
  for (int i = lane(); i < n; i += 32) dlogits[row * n + i] = g[i];
}

// The same for up to 32 * kPer experts and 32 choices: lane l has the experts l, l + 32, ..., and the row's
// l-th choice.
template <int kPer>
__global__ void __launch_bounds__(kThreads)
    select_dx_few_kernel(const __grid_constant__ Shape s, const float* logits, const int32_t* chosen,
                         const float* dweights, const float* dscores, float* dlogits) {
  await_previous();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (row >= s.rows) return;
  constexpr unsigned kAll = 0xffffffffu;
  const int me = lane();
  const bool chooses = me < s.k;
  const auto in = [&](int j) { return me + 32 * j < s.experts; };
  float z[kPer], p[kPer], g[kPer];
#pragma unroll
  for (int j = 0; j < kPer; ++j) {
    z[j] = in(j) ? logits[row * s.experts + me + 32 * j] : 0.0f;
    g[j] = in(j) && dscores != nullptr ? dscores[row * s.experts + me + 32 * j] : 0.0f;
  }
  const int choice = chooses && dweights != nullptr ? chosen[row * s.k + me] : 0;
  float du = chooses && dweights != nullptr ? dweights[row * s.k + me] * static_cast<float>(s.scale) : 0.0f;
  few_scores(s, z, p);
  // Sums over the experts and over the choices of a row.
  const auto sum_of = [&](const auto& f) {
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kPer; ++j) sum += f(j);
    return warp_fold(sum, Plus{});
  };
  if (s.score != Score::Softmax && dscores != nullptr) {  // through the division by the row's sum
    const float sum = sum_of([&](int j) { return p[j]; }) + static_cast<float>(kSmallest);
    const float mean = sum_of([&](int j) { return g[j] * p[j]; }) / sum;
#pragma unroll
    for (int j = 0; j < kPer; ++j) g[j] = (g[j] - mean) / sum;
  }
  // Adds each choice's value to its expert, one choice after another: the choices of a row are distinct,
  // unless forced balance has fewer experts than choices.
  const auto add_to_experts = [&](float value) {
    for (int c = 0; c < s.k; ++c) {
      const int at = __shfl_sync(kAll, choice, c);
      const float v = __shfl_sync(kAll, value, c);
#pragma unroll
      for (int j = 0; j < kPer; ++j)
        if (at == me + 32 * j) g[j] += v;
    }
  };
  float u = 0;  // the choice's weight before normalising
  if (dweights != nullptr) {
    u = few_weight(s, z, p, choice);
    if (s.normalise) {
      const float sum = warp_fold(u, Plus{}) + static_cast<float>(kSmallest);
      const float mean = warp_fold(du * u, Plus{}) / sum;
      du = (du - mean) / sum;
    }
    if (!s.top_k_first) add_to_experts(du);
  }
  if (s.score != Score::Softmax) {
#pragma unroll
    for (int j = 0; j < kPer; ++j) g[j] *= single_slope(s.score, p[j]);
  } else {
    const float mean = sum_of([&](int j) { return g[j] * p[j]; });
#pragma unroll
    for (int j = 0; j < kPer; ++j) g[j] = p[j] * (g[j] - mean);
  }
  if (dweights != nullptr && s.top_k_first) {
    const float mean = warp_fold(chooses ? du * u : 0.0f, Plus{});
    add_to_experts(u * (du - mean));
  }
#pragma unroll
  for (int j = 0; j < kPer; ++j)
    if (in(j)) dlogits[row * s.experts + me + 32 * j] = g[j];
}

__global__ void __launch_bounds__(256) join_choices_kernel(const int32_t* from, int64_t k, int32_t* to,
                                                           int64_t column, int64_t columns, int64_t rows) {
  await_previous();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < rows * k) to[i / k * columns + column + i % k] = from[i];
}

}  // namespace

void join_choices(const int32_t* from, int64_t k, int32_t* to, int64_t column, int64_t columns, int64_t rows,
                  Stream stream) {
  if (rows <= 0 || k <= 0) return;
  join_choices_kernel<<<static_cast<unsigned>(divide_up(rows * k, 256)), 256, 0, stream>>>(
      from, k, to, column, columns, rows);
  check_launch("join_choices");
}

template <class S>
void select(const SelectShape& shape, const S* logits, const S* bias, const int32_t* given, S* scores,
            int32_t* chosen, S* weights, Stream stream) {
  const Shape s(shape);
  if (s.rows <= 0 || s.experts <= 0) return;
  const auto blocks = static_cast<unsigned>(divide_up(s.rows, kWarps));
  if constexpr (std::is_same_v<S, float>) {
    const auto few = [&](auto* kernel) {
      kernel<<<blocks, kThreads, 0, stream>>>(s, logits, bias, scores, chosen, weights);
      check_launch("select");
    };
    if (s.groups_kept == s.groups && given == nullptr && s.k <= 32) {
      if (s.experts <= 32) return few(select_few_kernel<1>);
      if (s.experts <= 64) return few(select_few_kernel<2>);
      if (s.experts <= 128) return few(select_few_kernel<4>);
      if (s.experts <= 256) return few(select_few_kernel<8>);
    }
  }
  const int64_t bytes = kWarps * Scratch<S>::bytes(s.experts, s.groups);
  allow_all_shared(select_kernel<S>, "select");
  select_kernel<S><<<blocks, kThreads, static_cast<size_t>(bytes), stream>>>(s, logits, bias, given, scores,
                                                                             chosen, weights);
  check_launch("select");
}

template <class S>
void select_dx(const SelectShape& given, const S* logits, const int32_t* chosen, const S* dweights,
               const S* dscores, S* dlogits, Stream stream) {
  const Shape s(given);
  if (s.rows <= 0 || s.experts <= 0) return;
  const auto blocks = static_cast<unsigned>(divide_up(s.rows, kWarps));
  if constexpr (std::is_same_v<S, float>) {
    const auto few = [&](auto* kernel) {
      kernel<<<blocks, kThreads, 0, stream>>>(s, logits, chosen, dweights, dscores, dlogits);
      check_launch("select_dx");
    };
    if (s.k <= 32) {
      if (s.experts <= 32) return few(select_dx_few_kernel<1>);
      if (s.experts <= 64) return few(select_dx_few_kernel<2>);
      if (s.experts <= 128) return few(select_dx_few_kernel<4>);
      if (s.experts <= 256) return few(select_dx_few_kernel<8>);
    }
  }
  const int64_t bytes = kWarps * (2 * given.experts + 2 * given.k) * static_cast<int64_t>(sizeof(S));
  allow_all_shared(select_dx_kernel<S>, "select_dx");
  select_dx_kernel<S><<<blocks, kThreads, static_cast<size_t>(bytes), stream>>>(s, logits, chosen, dweights,
                                                                                dscores, dlogits);
  check_launch("select_dx");
}

#define INSTANTIATE(S)                    \
  template decltype(select<S>) select<S>; \
  template decltype(select_dx<S>) select_dx<S>;
INSTANTIATE(double)
INSTANTIATE(float)
#undef INSTANTIATE

}  // namespace quintet::kernels::cuda
