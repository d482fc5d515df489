// Chooses each token's experts and their weights: kernels/cpu/experts/router_select.h on device memory.
// S is the type of logits, scores and weights: double or float.
#pragma once

#include "kernels/cuda/support/types.h"
#include "kernels/routing_shapes.h"

namespace quintet::kernels::cuda {

// A NaN is chosen last here; the CPU may choose it first.
template <class S>
void select(const SelectShape& s, const S* logits, const S* bias, const int32_t* given, S* scores,
            int32_t* chosen, S* weights, Stream stream);

void join_choices(const int32_t* from, int64_t k, int32_t* to, int64_t column, int64_t columns, int64_t rows,
                  Stream stream);

template <class S>
void select_dx(const SelectShape& s, const S* logits, const int32_t* chosen, const S* dweights,
               const S* dscores, S* dlogits, Stream stream);

}  // namespace quintet::kernels::cuda
