#include "kernels/cpu/elementwise/dropout.h"

#include "kernels/cpu/support/isa.h"

namespace quintet::kernels::cpu {

QUINTET_SELECT_VARIANT(dropout_variants, DropoutVariants)

template <class T>
void dropout(const T* x, const int32_t* samples, const int32_t* positions, uint64_t key, double p,
             int64_t feature_offset, T* y, int64_t tokens, int64_t n, ThreadPool& pool) {
  variants<T>().dropout(x, samples, positions, key, p, feature_offset, y, tokens, n, pool);
}

template <class T>
void jitter(const T* x, const int32_t* samples, const int32_t* positions, uint64_t key, double eps,
            int64_t feature_offset, T* y, int64_t tokens, int64_t n, ThreadPool& pool) {
  variants<T>().jitter(x, samples, positions, key, eps, feature_offset, y, tokens, n, pool);
}

#define INSTANTIATE(T)                      \
  template decltype(dropout<T>) dropout<T>; \
  template decltype(jitter<T>) jitter<T>;
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bf16)
INSTANTIATE(F16)
#undef INSTANTIATE

}  // namespace quintet::kernels::cpu
