#include "kernels/cpu/elementwise/pointwise.h"

#include <cstring>

#include "kernels/cpu/support/isa.h"

namespace quintet::kernels::cpu {

QUINTET_SELECT_VARIANT(pointwise_variants, PointwiseVariants)

template <class T>
void add(const T* a, const T* b, T* c, int64_t n, ThreadPool& pool) {
  variants<T>().add(a, b, c, n, pool);
}

template <class T>
void add_bias(const T* x, const T* b, T* y, int64_t rows, int64_t n, ThreadPool& pool) {
  variants<T>().add_bias(x, b, y, rows, n, pool);
}

template <class T>
void fill(T* y, double value, int64_t n, ThreadPool& pool) {
  variants<T>().fill(y, value, n, pool);
}

template <class T>
void scale(const T* x, double alpha, T* y, int64_t n, ThreadPool& pool) {
  variants<T>().scale(x, alpha, y, n, pool);
}

template <class X, class Y>
void accumulate(const X* x, Y* y, double alpha, int64_t n, ThreadPool& pool) {
  if constexpr (std::is_same_v<X, double>)
    variants<Y>().accumulate_from_f64(x, y, alpha, n, pool);
  else if constexpr (std::is_same_v<X, float>)
    variants<Y>().accumulate_from_f32(x, y, alpha, n, pool);
  else if constexpr (std::is_same_v<X, Bf16>)
    variants<Y>().accumulate_from_bf16(x, y, alpha, n, pool);
  else
    variants<Y>().accumulate_from_f16(x, y, alpha, n, pool);
}

template <class X, class Y>
void cast(const X* x, Y* y, int64_t n, ThreadPool& pool) {
  if constexpr (std::is_same_v<X, double>)
    variants<Y>().cast_from_f64(x, y, n, pool);
  else if constexpr (std::is_same_v<X, float>)
    variants<Y>().cast_from_f32(x, y, n, pool);
  else if constexpr (std::is_same_v<X, Bf16>)
    variants<Y>().cast_from_bf16(x, y, n, pool);
  else
    variants<Y>().cast_from_f16(x, y, n, pool);
}

void zero(void* y, int64_t bytes, ThreadPool& pool) {
  pool.parallel_for(0, bytes, 65536, [&](int64_t begin, int64_t end, int) {
    std::memset(static_cast<uint8_t*>(y) + begin, 0, static_cast<size_t>(end - begin));
  });
}

#define INSTANTIATE(T)                                            \
  template decltype(accumulate<double, T>) accumulate<double, T>; \
  template decltype(accumulate<float, T>) accumulate<float, T>;   \
  template decltype(accumulate<Bf16, T>) accumulate<Bf16, T>;     \
  template decltype(accumulate<F16, T>) accumulate<F16, T>;       \
  template decltype(cast<double, T>) cast<double, T>;             \
  template decltype(cast<float, T>) cast<float, T>;               \
  template decltype(cast<Bf16, T>) cast<Bf16, T>;                 \
  template decltype(cast<F16, T>) cast<F16, T>;                   \
  template decltype(add<T>) add<T>;                               \
  template decltype(add_bias<T>) add_bias<T>;                     \
  template decltype(fill<T>) fill<T>;                             \
  template decltype(scale<T>) scale<T>;
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bf16)
INSTANTIATE(F16)
#undef INSTANTIATE

}  // namespace quintet::kernels::cpu
