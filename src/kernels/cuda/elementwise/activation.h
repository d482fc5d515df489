// Gated and plain activations, elementwise, in Stat<T> arithmetic. Outputs may alias inputs of the same
// position.
#pragma once

#include "kernels/cuda/support/types.h"
#include "kernels/gate.h"

namespace quintet::kernels::cuda {

// y = act(gate) * up, with silu(z) = z / (1 + exp(-z)) or GELU. Row r of gate and up starts at
// gate + r * in_stride, so both may be halves of one packed matmul output; y rows are contiguous.
template <class T>
void swiglu(const T* gate, const T* up, int64_t in_stride, T* y, int64_t rows, int64_t n, Stream stream,
            Gate act = Gate::Silu);
// dgate and dup have row stride in_stride like gate and up, and may alias them. `y` (null: none) receives the
// forward result again, for a weight gradient that does not have it, and may alias dy.
template <class T>
void swiglu_backward(const T* dy, const T* gate, const T* up, int64_t in_stride, T* dgate, T* dup, T* y,
                     int64_t rows, int64_t n, Stream stream, Gate act = Gate::Silu);

// GELU: x times the normal distribution's cumulative probability (1 + erf(x / sqrt(2))) / 2, or its tanh
// form, 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
template <class T>
void gelu(const T* x, T* y, int64_t n, Stream stream, GeluForm form = GeluForm::Tanh);
template <class T>
void gelu_backward(const T* dy, const T* x, T* dx, int64_t n, Stream stream, GeluForm form = GeluForm::Tanh);

template <class T>
void silu(const T* x, T* y, int64_t n, Stream stream);
template <class T>
void silu_backward(const T* dy, const T* x, T* dx, int64_t n, Stream stream);

// y = cap * tanh(x / cap), which stays within (-cap, cap). Backward: dx = dy * (1 - tanh(x / cap)^2).
template <class T>
void soft_cap(const T* x, double cap, T* y, int64_t n, Stream stream);
template <class T>
void soft_cap_backward(const T* dy, const T* x, double cap, T* dx, int64_t n, Stream stream);

}  // namespace quintet::kernels::cuda
