#include "kernels/cpu/experts/expert_act.h"

#include "kernels/cpu/support/isa.h"

namespace quintet::kernels::cpu {

QUINTET_SELECT_VARIANT(expert_act_variants, ExpertActVariants)

template <class T>
void expert_act(const T* gate, const T* up, const Stat<T>* weight, T* h, int64_t rows, int64_t n,
                const ExpertGate& form, ThreadPool& pool) {
  variants<T>().expert_act(gate, up, weight, h, rows, n, form, pool);
}

template <class T>
void expert_act_backward(const T* dh, const T* gate, const T* up, const Stat<T>* weight, T* dgate, T* dup,
                         Stat<T>* dweight, int64_t rows, int64_t n, const ExpertGate& form,
                         ThreadPool& pool) {
  variants<T>().expert_act_backward(dh, gate, up, weight, dgate, dup, dweight, rows, n, form, pool);
}

template <class T>
void scale_rows(const T* y, const T* g, T* z, int64_t rows, int64_t n, ThreadPool& pool) {
  variants<T>().scale_rows(y, g, z, rows, n, pool);
}

template <class T>
void scale_rows_backward(const T* dz, const T* y, const T* g, T* dy, T* dg, int64_t rows, int64_t n,
                         ThreadPool& pool) {
  variants<T>().scale_rows_backward(dz, y, g, dy, dg, rows, n, pool);
}

#define INSTANTIATE(T)                                              \
  template decltype(expert_act<T>) expert_act<T>;                   \
  template decltype(expert_act_backward<T>) expert_act_backward<T>; \
  template decltype(scale_rows<T>) scale_rows<T>;                   \
  template decltype(scale_rows_backward<T>) scale_rows_backward<T>;
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bf16)
INSTANTIATE(F16)
#undef INSTANTIATE

}  // namespace quintet::kernels::cpu
