// Gated and plain activations, elementwise over n elements, in Stat<T> arithmetic. Outputs may alias inputs
// of the same position.
#pragma once

#include "kernels/cpu/support/types.h"
#include "kernels/gate.h"

namespace quintet::kernels::cpu {

// y = act(gate) * up, with silu(z) = z / (1 + exp(-z)) or GELU. Row r of gate and up starts at
// gate + r * in_stride, so both may be halves of one packed matmul output; y rows are contiguous.
template <class T>
void swiglu(const T* gate, const T* up, int64_t in_stride, T* y, int64_t rows, int64_t n, ThreadPool& pool,
            Gate act = Gate::Silu);
// dgate and dup have row stride in_stride like gate and up, and may alias them. `y` (null: none) receives
// swiglu's result again and may alias dy.
template <class T>
void swiglu_backward(const T* dy, const T* gate, const T* up, int64_t in_stride, T* dgate, T* dup, T* y,
                     int64_t rows, int64_t n, ThreadPool& pool, Gate act = Gate::Silu);

// GELU: x times the normal distribution's cumulative probability (1 + erf(x / sqrt(2))) / 2, or its tanh
// form, 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
template <class T>
void gelu(const T* x, T* y, int64_t n, ThreadPool& pool, GeluForm form = GeluForm::Tanh);
template <class T>
void gelu_backward(const T* dy, const T* x, T* dx, int64_t n, ThreadPool& pool,
                   GeluForm form = GeluForm::Tanh);

template <class T>
void silu(const T* x, T* y, int64_t n, ThreadPool& pool);
template <class T>
void silu_backward(const T* dy, const T* x, T* dx, int64_t n, ThreadPool& pool);

// y = cap * tanh(x / cap), which stays within (-cap, cap). Backward: dx = dy * (1 - tanh(x / cap)^2).
template <class T>
void soft_cap(const T* x, double cap, T* y, int64_t n, ThreadPool& pool);
template <class T>
void soft_cap_backward(const T* dy, const T* x, double cap, T* dx, int64_t n, ThreadPool& pool);

// The builds per instruction set (support/isa.h).
template <class T>
struct ActivationVariants {
  decltype(&cpu::swiglu<T>) swiglu;
  decltype(&cpu::swiglu_backward<T>) swiglu_backward;
  decltype(&cpu::gelu<T>) gelu;
  decltype(&cpu::gelu_backward<T>) gelu_backward;
  decltype(&cpu::silu<T>) silu;
  decltype(&cpu::silu_backward<T>) silu_backward;
  decltype(&cpu::soft_cap<T>) soft_cap;
  decltype(&cpu::soft_cap_backward<T>) soft_cap_backward;
};

}  // namespace quintet::kernels::cpu
