// Chooses each token's experts and their weights. S is the type of logits, scores and weights: double or
// float. All rows are independent of each other.
#pragma once

#include "kernels/cpu/support/types.h"
#include "kernels/routing_shapes.h"

namespace quintet::kernels::cpu {

// scores[rows, experts]: softmax, or another score divided by its row's sum (+ kSmallest). chosen[rows, k]:
// the experts with the largest score (before that division; top_k_first: the logit) plus bias (null: none),
// largest first, ties to the lower index; always distinct, whatever the logits are. `given` (null: nothing)
// are positions, for (position * k + j) mod experts instead, or with route_columns > 0 the choices plus 1 of
// rows whose first one is not 0. weights[rows, k]: of the chosen experts, without bias.
template <class S>
int64_t select_workspace_bytes(const SelectShape& s, int threads);
template <class S>
void select(const SelectShape& s, const S* logits, const S* bias, const int32_t* given, S* scores,
            int32_t* chosen, S* weights, void* workspace, ThreadPool& pool);

// Columns [column, column + k) of to[rows, columns] = from[rows, k].
void join_choices(const int32_t* from, int64_t k, int32_t* to, int64_t column, int64_t columns, int64_t rows,
                  ThreadPool& pool);

// dlogits[rows, experts] from the gradients of weights[rows, k] and scores[rows, experts]; either may be
// null.
template <class S>
int64_t select_dx_workspace_bytes(const SelectShape& s, int threads);
template <class S>
void select_dx(const SelectShape& s, const S* logits, const int32_t* chosen, const S* dweights,
               const S* dscores, S* dlogits, void* workspace, ThreadPool& pool);

}  // namespace quintet::kernels::cpu
