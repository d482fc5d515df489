#include "kernels/cpu/elementwise/heads.h"

#include "kernels/cpu/support/isa.h"

namespace quintet::kernels::cpu {

QUINTET_SELECT_VARIANT(heads_variants, HeadsVariants)

template <class T>
void join_heads(const T* a, const T* b, bool shared, T* y, int64_t rows, int64_t heads, int64_t d1,
                int64_t d2, ThreadPool& pool) {
  variants<T>().join_heads(a, b, shared, y, rows, heads, d1, d2, pool);
}

template <class T>
void join_heads_backward(const T* dy, bool shared, T* da, T* db, int64_t rows, int64_t heads, int64_t d1,
                         int64_t d2, ThreadPool& pool) {
  variants<T>().join_heads_backward(dy, shared, da, db, rows, heads, d1, d2, pool);
}

#define INSTANTIATE(T)                            \
  template decltype(join_heads<T>) join_heads<T>; \
  template decltype(join_heads_backward<T>) join_heads_backward<T>;
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bf16)
INSTANTIATE(F16)
#undef INSTANTIATE

}  // namespace quintet::kernels::cpu
