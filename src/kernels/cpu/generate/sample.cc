#include "kernels/cpu/generate/sample.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "base/philox.h"

namespace quintet::kernels::cpu {
namespace {

constexpr double kDropped = -std::numeric_limits<double>::infinity();

// Penalises each id of the sequence once; `seen` is scratch.
void penalise(const SampleRule& rule, const History& history, int64_t t, int64_t position, double* logits,
              double* seen) {
  std::fill_n(seen, rule.vocab, 0.0);
  for (int64_t p = 0; p <= position; ++p) {
    const int64_t row = history.pages.row(history.sequences[t], p);
    if (row < 0) continue;
    const int32_t id = history.ids[row];
    if (id < 0 || id >= rule.vocab || seen[id] != 0) continue;
    seen[id] = 1;
    logits[id] = logits[id] > 0 ? logits[id] / rule.repetition_penalty : logits[id] * rule.repetition_penalty;
  }
}

void drop_below(double* logits, int64_t count, double least) {
  for (int64_t i = 0; i < count; ++i)
    if (logits[i] < least) logits[i] = kDropped;
}

// Logits are at most 0, divided by the temperature; `sorted` is scratch.
void filter(const SampleRule& rule, double* logits, double* sorted) {
  const int64_t n = rule.vocab;
  if (rule.top_k > 0 && rule.top_k < n) {
    std::copy_n(logits, n, sorted);
    std::nth_element(sorted, sorted + rule.top_k - 1, sorted + n, std::greater<>());
    drop_below(logits, n, sorted[rule.top_k - 1]);
  }
  if (rule.top_p < 1) {
    double total = 0;
    int64_t kept = 0;
    for (int64_t i = 0; i < n; ++i)
      if (logits[i] > kDropped) sorted[kept++] = logits[i], total += std::exp(logits[i]);
    std::sort(sorted, sorted + kept, std::greater<>());
    double sum = 0;
    int64_t last = 0;
    for (int64_t i = 0; i < kept; ++i) {
      last = i;
      if ((sum += std::exp(sorted[i])) >= rule.top_p * total) break;
    }
    drop_below(logits, n, sorted[last]);
  }
  if (rule.min_p > 0) drop_below(logits, n, std::log(rule.min_p));
}

int32_t draw(const double* logits, int64_t n, double uniform, int32_t likeliest) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += std::exp(logits[i]);
  double left = uniform * sum;
  for (int64_t i = 0; i < n; ++i)
    if ((left -= std::exp(logits[i])) < 0) return static_cast<int32_t>(i);
  return likeliest;
}

}  // namespace

template <class T>
void sample(const T* logits, int64_t tokens, int64_t columns, const SampleRule& rule, const int32_t* samples,
            const int32_t* positions, const History& history, int32_t* ids, std::byte* workspace,
            ThreadPool& pool) {
  pool.parallel_for(0, tokens, 1, [&](int64_t begin, int64_t end, int worker) {
    double* const x = reinterpret_cast<double*>(workspace) + worker * 2 * rule.vocab;
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t i = 0; i < rule.vocab; ++i)
        x[i] = static_cast<double>(static_cast<Stat<T>>(logits[t * columns + i]));
      if (history.ids != nullptr) penalise(rule, history, t, positions[t], x, x + rule.vocab);
      const double* const likeliest = std::max_element(x, x + rule.vocab);
      // A NaN in front makes it the largest, one further on is skipped by the comparison.
      const bool finite = std::none_of(x, x + rule.vocab, [](double v) { return std::isnan(v); });
      if (!finite || !std::isfinite(*likeliest)) {
        ids[t] = -1;
        continue;
      }
      ids[t] = static_cast<int32_t>(likeliest - x);
      if (rule.temperature == 0) continue;
      const double most = *likeliest;
      for (int64_t i = 0; i < rule.vocab; ++i) x[i] = (x[i] - most) / rule.temperature;
      filter(rule, x, x + rule.vocab);
      const double uniform =
          base::uniform(rule.key, static_cast<uint64_t>(positions[t]) + 1, static_cast<uint64_t>(samples[t]));
      ids[t] = draw(x, rule.vocab, uniform, ids[t]);
    }
  });
}

int64_t sample_workspace_bytes(int64_t vocab, int threads) {
  return threads * 2 * vocab * int64_t{sizeof(double)};
}

void take_rows(const std::byte* x, const int32_t* rows, int64_t count, int64_t bytes, std::byte* out) {
  for (int64_t i = 0; i < count; ++i)
    std::memcpy(out + i * bytes, x + rows[i] * bytes, static_cast<size_t>(bytes));
}

void cache_append(const std::byte* rows, int64_t tokens, int64_t bytes, int64_t stride,
                  const PagedRows& pages, const int32_t* sequences, const int32_t* positions,
                  std::byte* cache, ThreadPool& pool) {
  pool.parallel_for(0, tokens, 64, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t)
      if (const int64_t row = pages.row(sequences[t], positions[t]); row >= 0)
        std::memcpy(cache + row * bytes, rows + t * stride, static_cast<size_t>(bytes));
  });
}

template <class S>
void log_prob(const S* max, const S* sum, const S* label_logit, const int32_t* labels, int64_t tokens,
              S* out) {
  for (int64_t t = 0; t < tokens; ++t)
    out[t] = labels[t] < 0 ? 0 : static_cast<S>(label_logit[t] - max[t] - std::log(sum[t]));
}

#define INSTANTIATE(T) template decltype(sample<T>) sample<T>;
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bf16)
INSTANTIATE(F16)
#undef INSTANTIATE
template decltype(log_prob<float>) log_prob<float>;
template decltype(log_prob<double>) log_prob<double>;

}  // namespace quintet::kernels::cpu
