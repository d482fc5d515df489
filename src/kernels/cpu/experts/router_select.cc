#include "kernels/cpu/experts/router_select.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/support/round_up.h"

namespace quintet::kernels::cpu {
namespace {

constexpr int64_t kGrain = 8;  // rows

constexpr int64_t aligned(int64_t bytes) { return round_up(bytes, kWorkspaceAlignment); }

template <class S>
void softmax(const S* x, S* y, int64_t n) {
  S max = x[0], sum = 0;
  for (int64_t i = 1; i < n; ++i) max = std::max(max, x[i]);
  for (int64_t i = 0; i < n; ++i) sum += y[i] = std::exp(x[i] - max);
  for (int64_t i = 0; i < n; ++i) y[i] /= sum;
}

template <class S>
S sigmoid(S x) {
  return 1 / (1 + std::exp(-x));
}

template <class S>
S sqrt_softplus(S x) {
  return std::sqrt(std::max(x, S{0}) + std::log1p(std::exp(-std::abs(x))));
}
// Its derivative from its value p, as sigmoid(x) = 1 - exp(-p^2).
template <class S>
S sqrt_softplus_slope(S p) {
  return p > 0 ? -std::expm1(-p * p) / (2 * p) : S{0};
}

// The scores of a row, those of independent logits not divided by their sum yet.
template <class S>
void score_row(Score score, const S* x, S* y, int64_t n) {
  switch (score) {
    case Score::Softmax:
      return softmax(x, y, n);
    case Score::Sigmoid:
      for (int64_t i = 0; i < n; ++i) y[i] = sigmoid(x[i]);
      return;
    case Score::SqrtSoftplus:
      for (int64_t i = 0; i < n; ++i) y[i] = sqrt_softplus(x[i]);
      return;
  }
}

template <class S>
S sum_of(const S* x, int64_t n) {
  S sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i];
  return sum;
}

template <class S>
S dot(const S* a, const S* b, int64_t n) {
  S sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// Index of the largest key not yet taken, ties to the lower index; -1 when all are taken. A NaN never
// compares larger, yet every call returns a new index.
template <class S>
int64_t best(const S* keys, const uint8_t* taken, int64_t n) {
  int64_t at = -1;
  for (int64_t i = 0; i < n; ++i)
    if (!taken[i] && (at < 0 || keys[i] > keys[at])) at = i;
  return at;
}

// A worker's scratch: a key per expert and per group, and which of them are taken.
template <class S>
struct Scratch {
  S *keys, *group_keys;
  uint8_t *taken, *group_taken;

  static int64_t bytes(const SelectShape& s) {
    return aligned((s.experts + s.groups) * static_cast<int64_t>(sizeof(S) + 1));
  }
  Scratch(const SelectShape& s, void* workspace, int worker)
      : keys(reinterpret_cast<S*>(static_cast<std::byte*>(workspace) + worker * bytes(s))),
        group_keys(keys + s.experts),
        taken(reinterpret_cast<uint8_t*>(group_keys + s.groups)),
        group_taken(taken + s.experts) {}
};

// Excludes the experts of all but the best groups.
template <class S>
void keep_groups(const SelectShape& s, bool biased, const Scratch<S>& scratch) {
  const int64_t size = s.experts / s.groups;
  for (int64_t g = 0; g < s.groups; ++g) {
    const S* keys = scratch.keys + g * size;
    uint8_t* taken = scratch.taken + g * size;
    const int64_t first = best(keys, taken, size);
    scratch.group_keys[g] = keys[first];
    if (biased && size > 1) {
      taken[first] = 1;
      scratch.group_keys[g] += keys[best(keys, taken, size)];
      taken[first] = 0;
    }
  }
  std::fill_n(scratch.group_taken, s.groups, uint8_t{0});
  for (int64_t i = 0; i < s.groups_kept; ++i)
    scratch.group_taken[best(scratch.group_keys, scratch.group_taken, s.groups)] = 1;
  for (int64_t g = 0; g < s.groups; ++g)
    if (!scratch.group_taken[g]) std::fill_n(scratch.taken + g * size, size, uint8_t{1});
}

// `scores` are not normalised yet.
template <class S>
void choose(const SelectShape& s, const S* logits, const S* scores, const S* bias, int32_t* chosen,
            const Scratch<S>& scratch) {
  const S* from = s.top_k_first ? logits : scores;
  for (int64_t i = 0; i < s.experts; ++i) scratch.keys[i] = bias != nullptr ? from[i] + bias[i] : from[i];
  std::fill_n(scratch.taken, s.experts, uint8_t{0});
  if (s.groups_kept < s.groups) keep_groups(s, bias != nullptr, scratch);
  for (int64_t j = 0; j < s.k; ++j) {
    const int64_t at = best(scratch.keys, scratch.taken, s.experts);
    scratch.taken[at] = 1;
    chosen[j] = static_cast<int32_t>(at);
  }
}

// The weights before they are normalised and scaled.
template <class S>
void raw_weights(const SelectShape& s, const S* logits, const S* scores, const int32_t* chosen, S* out) {
  for (int64_t j = 0; j < s.k; ++j) out[j] = (s.top_k_first ? logits : scores)[chosen[j]];
  if (s.top_k_first) softmax(out, out, s.k);
}

}  // namespace

template <class S>
int64_t select_workspace_bytes(const SelectShape& s, int threads) {
  return threads * Scratch<S>::bytes(s);
}

template <class S>
void select(const SelectShape& s, const S* logits, const S* bias, const int32_t* given, S* scores,
            int32_t* chosen, S* weights, void* workspace, ThreadPool& pool) {
  const int32_t* const positions = s.route_columns == 0 ? given : nullptr;
  const int32_t* const routes = s.route_columns > 0 ? given : nullptr;
  pool.parallel_for(0, s.rows, kGrain, [&](int64_t begin, int64_t end, int worker) {
    const Scratch<S> scratch(s, workspace, worker);
    for (int64_t r = begin; r < end; ++r) {
      const S* z = logits + r * s.experts;
      S *p = scores + r * s.experts, *w = weights + r * s.k;
      int32_t* c = chosen + r * s.k;
      score_row(s.score, z, p, s.experts);
      const int32_t* const route =
          routes != nullptr ? routes + r * s.route_columns + s.route_column : nullptr;
      if (route != nullptr && route[0] > 0)
        for (int64_t j = 0; j < s.k; ++j) c[j] = route[j] - 1;
      else if (positions != nullptr)
        for (int64_t j = 0; j < s.k; ++j) c[j] = static_cast<int32_t>((positions[r] * s.k + j) % s.experts);
      else
        choose(s, z, p, bias, c, scratch);
      raw_weights(s, z, p, c, w);
      const S divisor = s.normalise ? sum_of(w, s.k) + static_cast<S>(kSmallest) : S{1};
      for (int64_t j = 0; j < s.k; ++j) w[j] = w[j] / divisor * static_cast<S>(s.scale);
      if (s.score != Score::Softmax) {
        const S sum = sum_of(p, s.experts) + static_cast<S>(kSmallest);
        for (int64_t i = 0; i < s.experts; ++i) p[i] /= sum;
      }
    }
  });
}

void join_choices(const int32_t* from, int64_t k, int32_t* to, int64_t column, int64_t columns, int64_t rows,
                  ThreadPool& pool) {
  pool.parallel_for(0, rows, 64, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) std::copy_n(from + r * k, k, to + r * columns + column);
  });
}

// Scores, weights before normalising, their gradients.
template <class S>
int64_t select_dx_workspace_bytes(const SelectShape& s, int threads) {
  return threads * aligned((s.experts + 2 * s.k) * static_cast<int64_t>(sizeof(S)));
}

template <class S>
void select_dx(const SelectShape& s, const S* logits, const int32_t* chosen, const S* dweights,
               const S* dscores, S* dlogits, void* workspace, ThreadPool& pool) {
  const int64_t stride = select_dx_workspace_bytes<S>(s, 1);
  const int64_t n = s.experts, k = s.k;
  pool.parallel_for(0, s.rows, kGrain, [&](int64_t begin, int64_t end, int worker) {
    S* p = reinterpret_cast<S*>(static_cast<std::byte*>(workspace) + worker * stride);
    S *u = p + n, *du = u + k;
    for (int64_t r = begin; r < end; ++r) {
      const S* z = logits + r * n;
      const int32_t* c = chosen + r * k;
      S* g = dlogits + r * n;  // gradient of the scores, later that of the logits

      score_row(s.score, z, p, n);
      if (dscores != nullptr)
        std::copy_n(dscores + r * n, n, g);
      else
        std::fill_n(g, n, S{0});
      if (s.score != Score::Softmax && dscores != nullptr) {  // through the division by the row's sum
        const S sum = sum_of(p, n) + static_cast<S>(kSmallest), mean = dot(g, p, n) / sum;
        for (int64_t i = 0; i < n; ++i) g[i] = (g[i] - mean) / sum;
      }

      if (dweights != nullptr) {
        raw_weights(s, z, p, c, u);
        for (int64_t j = 0; j < k; ++j) du[j] = dweights[r * k + j] * static_cast<S>(s.scale);
        if (s.normalise) {
          const S sum = sum_of(u, k) + static_cast<S>(kSmallest), mean = dot(du, u, k) / sum;
          for (int64_t j = 0; j < k; ++j) du[j] = (du[j] - mean) / sum;
        }
        if (!s.top_k_first)
          for (int64_t j = 0; j < k; ++j) g[c[j]] += du[j];
      }

      if (s.score == Score::Sigmoid) {
        for (int64_t i = 0; i < n; ++i) g[i] *= p[i] * (1 - p[i]);
      } else if (s.score == Score::SqrtSoftplus) {
        for (int64_t i = 0; i < n; ++i) g[i] *= sqrt_softplus_slope(p[i]);
      } else {
        const S mean = dot(g, p, n);
        for (int64_t i = 0; i < n; ++i) g[i] = p[i] * (g[i] - mean);
      }
      if (dweights != nullptr && s.top_k_first) {
        const S mean = dot(du, u, k);
        for (int64_t j = 0; j < k; ++j) g[c[j]] += u[j] * (du[j] - mean);
      }
    }
  });
}

#define INSTANTIATE(S)                                                          \
  template decltype(select_workspace_bytes<S>) select_workspace_bytes<S>;       \
  template decltype(select<S>) select<S>;                                       \
  template decltype(select_dx_workspace_bytes<S>) select_dx_workspace_bytes<S>; \
  template decltype(select_dx<S>) select_dx<S>;
INSTANTIATE(double)
INSTANTIATE(float)
#undef INSTANTIATE

}  // namespace quintet::kernels::cpu
