#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/attention/layout.h"
#include "kernels/cpu/support/isa.h"

namespace quintet::kernels::cpu {

QUINTET_SELECT_VARIANT(attention_backward_variants, AttentionBackwardVariants)

template <class T>
int64_t attention_backward_workspace_bytes(const AttentionShape& shape, int workers) {
  const AttentionBackwardLayout<Stat<T>> layout(shape);
  const int64_t slots = layout.tasks < workers ? layout.tasks : workers;
  return slots * layout.slot * static_cast<int64_t>(sizeof(Stat<T>));
}

template <class T>
void attention_backward(const AttentionShape& shape, const T* dout, const T* q, const T* k, const T* v,
                        const T* o, const Stat<T>* lse, T* dq, T* dk, T* dv, void* workspace,
                        ThreadPool& pool) {
  variants<T>().attention_backward(shape, dout, q, k, v, o, lse, dq, dk, dv, workspace, pool);
}

template <class T>
void attention_hop_backward(const AttentionShape& shape, const T* dout, const T* q, const T* k, const T* v,
                            const T* o, const Stat<T>* lse, const Stat<T>* dq_before, Stat<T>* dq, T* dk,
                            T* dv, void* workspace, ThreadPool& pool) {
  variants<T>().attention_hop_backward(shape, dout, q, k, v, o, lse, dq_before, dq, dk, dv, workspace, pool);
}

#define INSTANTIATE(T)                                                                            \
  template decltype(attention_backward_workspace_bytes<T>) attention_backward_workspace_bytes<T>; \
  template decltype(attention_backward<T>) attention_backward<T>;                                 \
  template decltype(attention_hop_backward<T>) attention_hop_backward<T>;
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bf16)
INSTANTIATE(F16)
#undef INSTANTIATE

}  // namespace quintet::kernels::cpu
