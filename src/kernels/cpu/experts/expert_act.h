// The activation of routed experts, and the gate of a shared expert. Stat<T> arithmetic; outputs may alias
// inputs of the same position.
#pragma once

#include "kernels/cpu/support/types.h"
#include "kernels/gate.h"

namespace quintet::kernels::cpu {

// h = weight[row] * silu(gate) * up, or the clamped form, over `rows` rows of n.
template <class T>
void expert_act(const T* gate, const T* up, const Stat<T>* weight, T* h, int64_t rows, int64_t n,
                const ExpertGate& form, ThreadPool& pool);
template <class T>
void expert_act_backward(const T* dh, const T* gate, const T* up, const Stat<T>* weight, T* dgate, T* dup,
                         Stat<T>* dweight, int64_t rows, int64_t n, const ExpertGate& form, ThreadPool& pool);

// z = sigmoid(g[row]) * y
template <class T>
void scale_rows(const T* y, const T* g, T* z, int64_t rows, int64_t n, ThreadPool& pool);
template <class T>
void scale_rows_backward(const T* dz, const T* y, const T* g, T* dy, T* dg, int64_t rows, int64_t n,
                         ThreadPool& pool);

// The builds per instruction set (support/isa.h).
template <class T>
struct ExpertActVariants {
  decltype(&cpu::expert_act<T>) expert_act;
  decltype(&cpu::expert_act_backward<T>) expert_act_backward;
  decltype(&cpu::scale_rows<T>) scale_rows;
  decltype(&cpu::scale_rows_backward<T>) scale_rows_backward;
};

}  // namespace quintet::kernels::cpu
