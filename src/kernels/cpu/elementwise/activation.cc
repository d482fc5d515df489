#include "kernels/cpu/elementwise/activation.h"

#include "kernels/cpu/support/isa.h"

namespace quintet::kernels::cpu {

QUINTET_SELECT_VARIANT(activation_variants, ActivationVariants)

template <class T>
void swiglu(const T* gate, const T* up, int64_t in_stride, T* y, int64_t rows, int64_t n, ThreadPool& pool,
            Gate act) {
  variants<T>().swiglu(gate, up, in_stride, y, rows, n, pool, act);
}

template <class T>
void swiglu_backward(const T* dy, const T* gate, const T* up, int64_t in_stride, T* dgate, T* dup, T* y,
                     int64_t rows, int64_t n, ThreadPool& pool, Gate act) {
  variants<T>().swiglu_backward(dy, gate, up, in_stride, dgate, dup, y, rows, n, pool, act);
}

template <class T>
void gelu(const T* x, T* y, int64_t n, ThreadPool& pool, GeluForm form) {
  variants<T>().gelu(x, y, n, pool, form);
}

template <class T>
void gelu_backward(const T* dy, const T* x, T* dx, int64_t n, ThreadPool& pool, GeluForm form) {
  variants<T>().gelu_backward(dy, x, dx, n, pool, form);
}

template <class T>
void silu(const T* x, T* y, int64_t n, ThreadPool& pool) {
  variants<T>().silu(x, y, n, pool);
}

template <class T>
void silu_backward(const T* dy, const T* x, T* dx, int64_t n, ThreadPool& pool) {
  variants<T>().silu_backward(dy, x, dx, n, pool);
}

template <class T>
void soft_cap(const T* x, double cap, T* y, int64_t n, ThreadPool& pool) {
  variants<T>().soft_cap(x, cap, y, n, pool);
}

template <class T>
void soft_cap_backward(const T* dy, const T* x, double cap, T* dx, int64_t n, ThreadPool& pool) {
  variants<T>().soft_cap_backward(dy, x, cap, dx, n, pool);
}

#define INSTANTIATE(T)                                      \
  template decltype(swiglu<T>) swiglu<T>;                   \
  template decltype(swiglu_backward<T>) swiglu_backward<T>; \
  template decltype(gelu<T>) gelu<T>;                       \
  template decltype(gelu_backward<T>) gelu_backward<T>;     \
  template decltype(silu<T>) silu<T>;                       \
  template decltype(silu_backward<T>) silu_backward<T>;     \
  template decltype(soft_cap<T>) soft_cap<T>;               \
  template decltype(soft_cap_backward<T>) soft_cap_backward<T>;
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bf16)
INSTANTIATE(F16)
#undef INSTANTIATE

}  // namespace quintet::kernels::cpu
