#include "kernels/cpu/optimizer/adafactor.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "base/split_float.h"

namespace quintet::kernels::cpu {
namespace {

template <class T>
double number(T x) {
  return static_cast<double>(static_cast<Stat<T>>(x));
}

// Elements of a cell that threads take at a time are about as many.
constexpr int64_t kGrain = 8192;

int64_t cell_grain(const FactoredRange& r) { return std::max<int64_t>(1, kGrain / r.width()); }

// u = g / max(sqrt(factors), eps1)
struct Direction {
  const FactoredRange& r;
  double clip_scale, least;  // eps1^2
  Direction(const FactoredRange& range, const AdafactorScalars& k)
      : r(range), clip_scale(*k.clip_scale), least(k.eps1 * k.eps1) {}
  double operator()(const Cell& c, int64_t i, double gradient) const {
    const double v = r.rows > 0 ? r.row[c.row] * r.column[c.column + i] : r.column[c.column + i];
    return gradient * clip_scale / std::sqrt(std::max(v, least));
  }
};

template <class Weight, class Gradient>
void norms_of(const FactoredRange& r, const Weight& weight, const Gradient* grad, const AdafactorScalars& k,
              ThreadPool& pool) {
  const Direction direction(r, k);
  const int64_t cells = r.cells();
  // The cells of a matrix are consecutive. A fixed number of terms keeps sums independent of threads.
  for (int64_t begin = 0; begin < cells;) {
    const int64_t matrix = cell_of(r, begin).matrix;
    int64_t end = begin + 1;
    while (end < cells && cell_of(r, end).matrix == matrix) ++end;
    constexpr int64_t kTerms = 64;
    std::array<std::array<double, 2>, kTerms> terms{};
    pool.parallel_for(0, kTerms, 1, [&](int64_t first, int64_t last, int) {
      for (int64_t t = first; t < last; ++t)
        for (int64_t n = begin + (end - begin) * t / kTerms; n < begin + (end - begin) * (t + 1) / kTerms;
             ++n) {
          const Cell c = cell_of(r, n);
          for (int64_t i = 0; i < c.count; ++i) {
            const double p = weight(c.first + i), u = direction(c, i, number(grad[c.first + i]));
            terms[static_cast<size_t>(t)][0] += p * p;
            terms[static_cast<size_t>(t)][1] += u * u;
          }
        }
    });
    for (const auto& [weights, updates] : terms) {
      r.norms[2 * matrix] += weights;
      r.norms[2 * matrix + 1] += updates;
    }
    begin = end;
  }
}

template <class Read, class Write, class Gradient>
void update_of(const FactoredRange& r, const Read& read, const Write& write, const Gradient* grad,
               const AdafactorScalars& k, ThreadPool& pool) {
  if (*k.ok == 0) return;
  const Direction direction(r, k);
  const double lr = *k.lr * r.lr_factor, rate = k.relative ? std::min(lr, 1 / std::sqrt(*k.step)) : lr,
               ratio = k.decay_ratio != nullptr ? *k.decay_ratio : 1, keep = 1 - lr * ratio * r.weight_decay;
  pool.parallel_for(0, r.cells(), cell_grain(r), [&](int64_t first, int64_t last, int) {
    for (int64_t n = first; n < last; ++n) {
      const Cell c = cell_of(r, n);
      const double step = rate * r.size[c.matrix];
      for (int64_t i = 0; i < c.count; ++i) {
        const int64_t at = c.first + i;
        write(at, read(at) * keep - step * direction(c, i, number(grad[at])));
      }
    }
  });
}

auto split_reader(const Bf16* weight, const int16_t* remainder) {
  return [=](int64_t i) { return static_cast<double>(base::join_float(weight[i], remainder[i])); };
}

}  // namespace

template <class Gradient>
void factor_sums(const FactoredRange& r, const Gradient* grad, double clip_scale, ThreadPool& pool) {
  QUINTET_CHECK(r.count == 0 || r.origin.run % r.width() == 0, "runs of {} elements, in rows of {}",
                r.origin.run, r.columns);
  const auto square = [&](int64_t i) {
    const double g = number(grad[i]) * clip_scale;
    return g * g;
  };
  // No two cells of a range are in one row, unless rows are cut into runs at several places.
  const bool alone = r.width() == r.columns || r.origin.stride % r.columns == 0;
  const int64_t cells = r.cells();
  if (r.rows > 0)
    pool.parallel_for(0, cells, alone ? cell_grain(r) : std::max<int64_t>(1, cells),
                      [&](int64_t first, int64_t last, int) {
                        for (int64_t n = first; n < last; ++n) {
                          const Cell c = cell_of(r, n);
                          double sum = 0;
                          for (int64_t i = 0; i < c.count; ++i) sum += square(c.first + i);
                          if (c.count > 0) r.row[c.row] += sum;
                        }
                      });
  // Threads have columns of their own, in the order of rows.
  pool.parallel_for(0, r.width(), 64, [&](int64_t first, int64_t last, int) {
    for (int64_t n = 0; n < cells; ++n) {
      const Cell c = cell_of(r, n);
      const int64_t skipped = (c.first + r.origin.first) % r.width();  // of a cell that is cut
      const int64_t begin = std::max<int64_t>(0, first - skipped), end = std::min(c.count, last - skipped);
      for (int64_t i = begin; i < end; ++i) r.column[c.column + i] += square(c.first + i);
    }
  });
}

template <class Average>
void update_factors(std::span<const FactoredShape> params, double* values, Average* averages,
                    const AdafactorScalars& k) {
  if (*k.ok == 0) return;
  const double weight = std::pow(*k.step, -k.decay);
  const auto advance = [&](int64_t i, double mean) {
    const double before = static_cast<double>(averages[i]), next = before + weight * (mean - before);
    averages[i] = static_cast<Average>(next);
    return next;
  };
  for (const FactoredShape& p : params) {
    const int64_t columns = p.first + p.each * p.rows;
    for (int64_t e = 0; e < p.each && p.rows > 0; ++e) {
      const int64_t first = p.first + e * p.rows;
      double sum = 0;
      for (int64_t i = first; i < first + p.rows; ++i)
        sum += values[i] = advance(i, values[i] / static_cast<double>(p.columns));
      const double mean = std::max(sum / static_cast<double>(p.rows), k.eps1);
      for (int64_t i = first; i < first + p.rows; ++i) values[i] /= mean;
    }
    for (int64_t i = columns; i < columns + p.each * p.columns; ++i)
      values[i] = advance(i, values[i] / static_cast<double>(std::max<int64_t>(p.rows, 1)));
  }
}

template <class Master, class Gradient>
void factor_norms(const FactoredRange& r, const Master* p, const Gradient* grad, const AdafactorScalars& k,
                  ThreadPool& pool) {
  norms_of(
      r, [=](int64_t i) { return number(p[i]); }, grad, k, pool);
}
template <class Gradient>
void factor_norms_split(const FactoredRange& r, const Bf16* weight, const int16_t* remainder,
                        const Gradient* grad, const AdafactorScalars& k, ThreadPool& pool) {
  norms_of(r, split_reader(weight, remainder), grad, k, pool);
}

void factor_sizes(std::span<const FactoredShape> params, const double* norms, double* sizes,
                  const AdafactorScalars& k) {
  for (const FactoredShape& p : params)
    for (int64_t m = p.matrix; m < p.matrix + p.each; ++m) {
      const auto count = static_cast<double>(std::max<int64_t>(p.rows, 1) * p.columns);
      const double update = std::sqrt(norms[2 * m + 1] / count), weight = std::sqrt(norms[2 * m] / count);
      sizes[m] = (k.relative ? std::max(weight, k.eps2) : 1) / std::max(1.0, update / k.clip);
    }
}

template <class Master, class Gradient, class Copy>
void adafactor(const FactoredRange& r, Master* p, const Gradient* grad, Copy* copy, const AdafactorScalars& k,
               ThreadPool& pool) {
  const auto write = [=](int64_t i, double next) {
    p[i] = static_cast<Master>(next);
    if (copy != nullptr) copy[i] = static_cast<Copy>(static_cast<Stat<Copy>>(p[i]));
  };
  update_of(
      r, [=](int64_t i) { return number(p[i]); }, write, grad, k, pool);
}
template <class Gradient>
void adafactor_split(const FactoredRange& r, Bf16* weight, int16_t* remainder, const Gradient* grad,
                     const AdafactorScalars& k, ThreadPool& pool) {
  const auto write = [=](int64_t i, double next) {
    const base::SplitFloat s = base::split_float(static_cast<float>(next));
    weight[i] = s.high;
    remainder[i] = s.low;
  };
  update_of(r, split_reader(weight, remainder), write, grad, k, pool);
}

template decltype(factor_sums<float>) factor_sums<float>;
template decltype(factor_sums<double>) factor_sums<double>;
template decltype(factor_sums<Bf16>) factor_sums<Bf16>;
template decltype(update_factors<float>) update_factors<float>;
template decltype(update_factors<double>) update_factors<double>;
#define INSTANTIATE(M, G, C)                                \
  template decltype(factor_norms<M, G>) factor_norms<M, G>; \
  template decltype(adafactor<M, G, C>) adafactor<M, G, C>;
INSTANTIATE(double, double, double)
INSTANTIATE(float, float, float)
INSTANTIATE(float, Bf16, Bf16)
#undef INSTANTIATE
template decltype(adafactor<double, double, float>) adafactor<double, double, float>;
template decltype(adafactor<double, double, Bf16>) adafactor<double, double, Bf16>;
template decltype(adafactor<float, float, Bf16>) adafactor<float, float, Bf16>;
template decltype(adafactor<float, float, F16>) adafactor<float, float, F16>;
template decltype(factor_norms_split<float>) factor_norms_split<float>;
template decltype(factor_norms_split<Bf16>) factor_norms_split<Bf16>;
template decltype(adafactor_split<float>) adafactor_split<float>;
template decltype(adafactor_split<Bf16>) adafactor_split<Bf16>;

}  // namespace quintet::kernels::cpu
