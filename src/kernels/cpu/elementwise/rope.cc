#include "kernels/cpu/elementwise/rope.h"

#include "kernels/cpu/support/isa.h"

namespace quintet::kernels::cpu {

QUINTET_SELECT_VARIANT(rope_variants, RopeVariants)

template <class T>
void rope(const T* x, int64_t x_stride, const int32_t* positions, const double* inv_freq, double scale, T* y,
          int64_t y_stride, int64_t tokens, int64_t heads, int64_t head_dim, bool inverse, ThreadPool& pool,
          int64_t rotated) {
  variants<T>().rope(x, x_stride, positions, inv_freq, scale, y, y_stride, tokens, heads, head_dim, inverse,
                     pool, rotated);
}

#define INSTANTIATE(T) template decltype(rope<T>) rope<T>;
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bf16)
INSTANTIATE(F16)
#undef INSTANTIATE

}  // namespace quintet::kernels::cpu
