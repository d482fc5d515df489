#include "kernels/cpu/experts/balance.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/reduce/chunks.h"

namespace quintet::kernels::cpu {
namespace {

constexpr int64_t kGrain = 8;  // rows

// First row of chunk c; column_chunks (reduce/chunks.h) defines their number.
int64_t chunk_begin(int64_t rows, int64_t c) { return rows * c / column_chunks(rows); }

// The sequence of a row where a buffer holds the rows of all ranks.
int64_t sequence_of(const base::RowOrder& order, int64_t row) {
  return row / (order.seq_len / order.ranks) % order.sequences;
}

template <class S>
double entropy(const S* p, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i)
    if (p[i] > 0) sum -= static_cast<double>(p[i] * std::log(p[i]));
  return sum;
}

template <class S>
S log_sum_exp(const S* x, int64_t n) {
  const S max = *std::max_element(x, x + n);
  S sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += std::exp(x[i] - max);
  return max + std::log(sum);
}

}  // namespace

int64_t expert_load_workspace_bytes(const LoadShape& s) {
  return column_chunks(s.rows) * (s.experts + 2) * static_cast<int64_t>(sizeof(double));
}

template <class S>
void expert_load(const LoadShape& s, const int32_t* chosen, const int32_t* kept, const S* scores,
                 double* load, bool accumulate, void* workspace, ThreadPool& pool) {
  const int64_t chunks = column_chunks(s.rows), n = s.experts + 2;
  double* partial = static_cast<double*>(workspace);
  pool.parallel_for(0, chunks, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t c = begin; c < end; ++c) {
      double* sums = partial + c * n;
      std::fill_n(sums, n, 0.0);
      for (int64_t r = chunk_begin(s.rows, c); r < chunk_begin(s.rows, c + 1); ++r) {
        for (int64_t i = r * s.k; i < (r + 1) * s.k; ++i) {
          sums[chosen[i]] += 1;
          sums[s.experts] += kept[i] < 0;
        }
        sums[s.experts + 1] += entropy(scores + r * s.experts, s.experts);
      }
    }
  });
  if (!accumulate) std::fill_n(load, n, 0.0);
  for (int64_t c = 0; c < chunks; ++c)
    for (int64_t i = 0; i < n; ++i) load[i] += partial[c * n + i];
}

int64_t balance_sums_workspace_bytes(const base::RowOrder& order, int64_t experts) {
  return order.sequences * column_chunks(order.seq_len) * 2 * experts * static_cast<int64_t>(sizeof(double));
}

template <class S>
void balance_sums(const base::RowOrder& order, int64_t experts, int64_t k, const S* scores,
                  const int32_t* chosen, S* sums, void* workspace, ThreadPool& pool) {
  const int64_t chunks = column_chunks(order.seq_len), n = 2 * experts;
  double* partial = static_cast<double*>(workspace);
  pool.parallel_for(0, order.sequences * chunks, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t sequence = task / chunks, c = task % chunks;
      double* counts = partial + task * n;
      double* totals = counts + experts;
      std::fill_n(counts, n, 0.0);
      for (int64_t p = chunk_begin(order.seq_len, c); p < chunk_begin(order.seq_len, c + 1); ++p) {
        const int64_t row = order.row_in_whole(sequence, p);
        for (int64_t j = 0; j < k; ++j) counts[chosen[row * k + j]] += 1;
        for (int64_t i = 0; i < experts; ++i) totals[i] += static_cast<double>(scores[row * experts + i]);
      }
    }
  });
  pool.parallel_for(0, order.sequences * n, 256, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      double total = 0;
      for (int64_t c = 0; c < chunks; ++c) total += partial[(i / n * chunks + c) * n + i % n];
      sums[i] = static_cast<S>(total);
    }
  });
}

template <class S>
void balance_dx(const base::RowOrder& order, int64_t experts, const S* dsums, S* dscores, ThreadPool& pool) {
  pool.parallel_for(0, order.rows(), kGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r)
      std::copy_n(dsums + sequence_of(order, r) * 2 * experts + experts, experts, dscores + r * experts);
  });
}

template <class S>
void balance_loss(const BalanceLoss& s, const S* sums, const double* running, double* loss, bool accumulate,
                  S* slope) {
  const double tokens = static_cast<double>(s.tokens);
  const double factor =
      s.coefficient / static_cast<double>(s.groups) * static_cast<double>(s.experts) / tokens;
  double assignments = static_cast<double>(s.k) * tokens;
  if (running != nullptr) {
    assignments = 0;
    for (int64_t i = 0; i < s.experts; ++i) assignments += running[i];
  }
  double total = 0;
  for (int64_t g = 0; g < s.groups_here; ++g) {
    const S* group = sums + g * 2 * s.experts;
    S* out = slope + g * 2 * s.experts;
    std::fill_n(out, s.experts, S{0});
    for (int64_t i = 0; i < s.experts; ++i) {
      const double count = running != nullptr ? running[i] : static_cast<double>(group[i]);
      const double share = assignments > 0 ? count / assignments : 0;
      total += factor * share * static_cast<double>(group[s.experts + i]);
      out[s.experts + i] = static_cast<S>(factor * share);
    }
  }
  *loss = accumulate ? *loss + total : total;
}

int64_t z_loss_workspace_bytes(int64_t rows) {
  return column_chunks(rows) * static_cast<int64_t>(sizeof(double));
}

template <class S>
void z_loss(const S* logits, int64_t rows, int64_t experts, double coefficient, double* loss, bool accumulate,
            void* workspace, ThreadPool& pool) {
  const int64_t chunks = column_chunks(rows);
  double* partial = static_cast<double*>(workspace);
  pool.parallel_for(0, chunks, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t c = begin; c < end; ++c) {
      partial[c] = 0;
      for (int64_t r = chunk_begin(rows, c); r < chunk_begin(rows, c + 1); ++r) {
        const double l = static_cast<double>(log_sum_exp(logits + r * experts, experts));
        partial[c] += l * l;
      }
    }
  });
  double total = 0;
  for (int64_t c = 0; c < chunks; ++c) total += partial[c];
  *loss = accumulate ? *loss + coefficient * total : coefficient * total;
}

template <class S>
void z_loss_dx(const S* logits, int64_t rows, int64_t experts, double coefficient, const double* dloss,
               S* dlogits, ThreadPool& pool) {
  const double factor = *dloss * coefficient * 2;
  pool.parallel_for(0, rows, kGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const S* z = logits + r * experts;
      const S l = log_sum_exp(z, experts), slope = static_cast<S>(factor * static_cast<double>(l));
      for (int64_t i = 0; i < experts; ++i) dlogits[r * experts + i] = slope * std::exp(z[i] - l);
    }
  });
}

template <class S>
void update_bias(const double* load, int64_t experts, double rate, S* bias) {
  double mean = 0;
  for (int64_t i = 0; i < experts; ++i) mean += load[i];
  mean /= static_cast<double>(experts);
  for (int64_t i = 0; i < experts; ++i)
    bias[i] += static_cast<S>(rate * ((mean > load[i]) - (mean < load[i])));
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

}  // namespace quintet::kernels::cpu
