// The activation of routed experts, the gate of a shared expert, and concatenation of heads. Stat<T>
// arithmetic; outputs may alias inputs of the same position, except when concatenating.
#pragma once

#include "kernels/cuda/support/types.h"
#include "kernels/gate.h"

namespace quintet::kernels::cuda {

// h = weight[row] * silu(gate) * up, or the clamped form, over the first *rows of `most` rows of n; `rows` is
// on the device.
template <class T>
void expert_act(const T* gate, const T* up, const Stat<T>* weight, T* h, const int64_t* rows, int64_t most,
                int64_t n, const ExpertGate& form, Stream stream);
template <class T>
void expert_act_backward(const T* dh, const T* gate, const T* up, const Stat<T>* weight, T* dgate, T* dup,
                         Stat<T>* dweight, const int64_t* rows, int64_t most, int64_t n,
                         const ExpertGate& form, Stream stream);

// z = sigmoid(g[row]) * y
template <class T>
void scale_rows(const T* y, const T* g, T* z, int64_t rows, int64_t n, Stream stream);
template <class T>
void scale_rows_backward(const T* dz, const T* y, const T* g, T* dy, T* dg, int64_t rows, int64_t n,
                         Stream stream);

// y[row, head] = a[row, head] (width d1), then b[row, head] (width d2), or b[row] where all heads share it.
template <class T>
void join_heads(const T* a, const T* b, bool shared, T* y, int64_t rows, int64_t heads, int64_t d1,
                int64_t d2, Stream stream);
// da and db from dy; a shared db is the sum over the heads, in their order.
template <class T>
void join_heads_backward(const T* dy, bool shared, T* da, T* db, int64_t rows, int64_t heads, int64_t d1,
                         int64_t d2, Stream stream);

}  // namespace quintet::kernels::cuda
