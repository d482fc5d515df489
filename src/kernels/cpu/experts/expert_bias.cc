#include "kernels/cpu/experts/expert_bias.h"

#include <algorithm>

namespace quintet::kernels::cpu {
namespace {

// Calls body(expert, first row, end row) for the experts in [begin, end).
template <class Body>
void each_expert(const int32_t* received, int64_t experts, int64_t sources, int64_t begin, int64_t end,
                 const Body& body) {
  int64_t row = 0;
  for (int64_t e = 0; e < end; ++e) {
    int64_t count = 0;
    for (int64_t s = 0; s < sources; ++s) count += received[s * experts + e];
    if (e >= begin) body(e, row, row + count);
    row += count;
  }
}

}  // namespace

template <class T>
void expert_bias(const T* y, const T* b, const int32_t* received, int64_t experts, int64_t sources, T* out,
                 int64_t n, ThreadPool& pool) {
  using S = Stat<T>;
  pool.parallel_for(0, experts, 1, [&](int64_t begin, int64_t end, int) {
    each_expert(received, experts, sources, begin, end, [&](int64_t e, int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r)
        for (int64_t i = 0; i < n; ++i)
          out[r * n + i] = static_cast<T>(static_cast<S>(y[r * n + i]) + static_cast<S>(b[e * n + i]));
    });
  });
}

template <class T>
void expert_bias_dw(const T* dy, const int32_t* received, int64_t experts, int64_t sources, Grad<T>* db,
                    bool accumulate, int64_t n, ThreadPool& pool) {
  using S = Stat<T>;
  pool.parallel_for(0, experts, 1, [&](int64_t begin, int64_t end, int) {
    each_expert(received, experts, sources, begin, end, [&](int64_t e, int64_t first, int64_t last) {
      if (!accumulate) std::fill_n(db + e * n, n, S(0));
      for (int64_t r = first; r < last; ++r)
        for (int64_t i = 0; i < n; ++i) db[e * n + i] += static_cast<S>(dy[r * n + i]);
    });
  });
}

template <class S>
void spread_choices(const S* weights, const int32_t* chosen, S* out, int64_t rows, int64_t k,
                    int64_t experts) {
  std::fill_n(out, rows * experts, S(0));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = 0; j < k; ++j)
      if (const int32_t e = chosen[r * k + j]; e >= 0) out[r * experts + e] = weights[r * k + j];
}

template <class S>
void gather_choices(const S* numbers, const int32_t* chosen, S* out, int64_t rows, int64_t k,
                    int64_t experts) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = 0; j < k; ++j) {
      const int32_t e = chosen[r * k + j];
      out[r * k + j] = e >= 0 ? numbers[r * experts + e] : S(0);
    }
}

template <class T>
void add_router_bias(const T* b, Stat<T>* logits, int64_t rows, int64_t routes, ThreadPool& pool) {
  pool.parallel_for(0, rows, 64, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r)
      for (int64_t i = 0; i < routes; ++i) logits[r * routes + i] += static_cast<Stat<T>>(b[i]);
  });
}

#define INSTANTIATE(T)                                    \
  template decltype(expert_bias<T>) expert_bias<T>;       \
  template decltype(expert_bias_dw<T>) expert_bias_dw<T>; \
  template decltype(add_router_bias<T>) add_router_bias<T>;
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bf16)
INSTANTIATE(F16)
#undef INSTANTIATE
template decltype(spread_choices<double>) spread_choices<double>;
template decltype(spread_choices<float>) spread_choices<float>;
template decltype(gather_choices<double>) gather_choices<double>;
template decltype(gather_choices<float>) gather_choices<float>;

}  // namespace quintet::kernels::cpu
