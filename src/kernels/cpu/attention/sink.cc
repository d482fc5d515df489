#include "kernels/cpu/attention/sink.h"

#include <algorithm>
#include <cmath>

namespace quintet::kernels::cpu {

template <class T>
void attention_sink(const T* o, const Stat<T>* lse, const T* sink, T* o_out, Stat<T>* lse_out, int64_t rows,
                    int64_t heads, int64_t d, ThreadPool& pool) {
  using S = Stat<T>;
  pool.parallel_for(0, rows, 16, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r)
      for (int64_t h = 0; h < heads; ++h) {
        const S before = lse[h * rows + r], s = static_cast<S>(sink[h]), most = std::max(before, s);
        const S after = most + std::log(std::exp(before - most) + std::exp(s - most));
        const S factor = std::exp(before - after);  // 0 for a row without keys, whose lse is -inf
        for (int64_t i = (r * heads + h) * d; i < (r * heads + h + 1) * d; ++i)
          o_out[i] = static_cast<T>(factor * static_cast<S>(o[i]));
        lse_out[h * rows + r] = after;
      }
  });
}

template <class T>
void attention_sink_dw(const T* dout, const T* o, const Stat<T>* lse, const T* sink, Grad<T>* dsink,
                       bool accumulate, int64_t rows, int64_t heads, int64_t d, ThreadPool& pool) {
  using S = Stat<T>;
  pool.parallel_for(0, heads, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t h = begin; h < end; ++h) {
      S sum = 0;
      for (int64_t r = 0; r < rows; ++r) {
        S dot = 0;
        for (int64_t i = (r * heads + h) * d; i < (r * heads + h + 1) * d; ++i)
          dot += static_cast<S>(dout[i]) * static_cast<S>(o[i]);
        sum -= std::exp(static_cast<S>(sink[h]) - lse[h * rows + r]) * dot;
      }
      dsink[h] = (accumulate ? dsink[h] : S(0)) + sum;
    }
  });
}

#define INSTANTIATE(T)                                    \
  template decltype(attention_sink<T>) attention_sink<T>; \
  template decltype(attention_sink_dw<T>) attention_sink_dw<T>;
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bf16)
INSTANTIATE(F16)
#undef INSTANTIATE

}  // namespace quintet::kernels::cpu
