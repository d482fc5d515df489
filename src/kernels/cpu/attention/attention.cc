#include "kernels/cpu/attention/attention.h"

#include "kernels/cpu/attention/layout.h"
#include "kernels/cpu/support/isa.h"

namespace quintet::kernels::cpu {

QUINTET_SELECT_VARIANT(attention_variants, AttentionVariants)

template <class T>
int64_t attention_workspace_bytes(const AttentionShape& shape, int workers) {
  const AttentionLayout<Stat<T>> layout(shape);
  const int64_t slots = layout.tasks < workers ? layout.tasks : workers;
  return slots * layout.slot * static_cast<int64_t>(sizeof(Stat<T>));
}

template <class T>
void attention(const AttentionShape& shape, const T* q, const T* k, const T* v, T* o, Stat<T>* lse,
               void* workspace, ThreadPool& pool) {
  variants<T>().attention(shape, q, k, v, o, lse, workspace, pool);
}

template <class T>
void attention_hop(const AttentionShape& shape, const T* q, const T* k, const T* v, const Stat<T>* o_before,
                   const Stat<T>* lse_before, Stat<T>* o, Stat<T>* lse, void* workspace, ThreadPool& pool) {
  variants<T>().attention_hop(shape, q, k, v, o_before, lse_before, o, lse, workspace, pool);
}

#define INSTANTIATE(T)                                                          \
  template decltype(attention_workspace_bytes<T>) attention_workspace_bytes<T>; \
  template decltype(attention<T>) attention<T>;                                 \
  template decltype(attention_hop<T>) attention_hop<T>;
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bf16)
INSTANTIATE(F16)
#undef INSTANTIATE

}  // namespace quintet::kernels::cpu
