// Attention sinks: one more key per head, of score sink[head] and value 0 (graph/ops/attention_sink.cc). D is
// Grad<T>, or Bf16 for T = Bf16.
#pragma once

#include "kernels/cuda/support/types.h"

namespace quintet::kernels::cuda {

// o[rows, heads, d], lse[heads, rows] -> with the sink. Outputs may be the inputs.
template <class T>
void attention_sink(const T* o, const Stat<T>* lse, const T* sink, T* o_out, Stat<T>* lse_out, int64_t rows,
                    int64_t heads, int64_t d, Stream stream);
// dsink[heads] (+)= - the sum over rows of exp(sink - lse) dout.o, of o and lse with the sink, in a fixed
// order
template <class T, class D>
void attention_sink_dw(const T* dout, const T* o, const Stat<T>* lse, const T* sink, D* dsink,
                       bool accumulate, int64_t rows, int64_t heads, int64_t d, Stream stream);

}  // namespace quintet::kernels::cuda
