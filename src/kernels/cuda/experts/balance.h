// Load balancing of experts: kernels/cpu/experts/balance.h on device memory. S is the type of logits and
// scores: double or float. Sums over rows are computed in double, in an order that only the sizes determine.
#pragma once

#include "kernels/cuda/support/types.h"
#include "kernels/routing_shapes.h"

namespace quintet::kernels::cuda {

// load[experts + 2] = (or +=): rows that chose each expert, choices that were dropped (kept < 0), sum over
// rows of -sum p log p with p the row's scores.
int64_t expert_load_workspace_bytes(const LoadShape& s);
template <class S>
void expert_load(const LoadShape& s, const int32_t* chosen, const int32_t* kept, const S* scores,
                 double* load, bool accumulate, void* workspace, Stream stream);

// Per sequence of `order` (rows of all ranks): sums[sequences, 2 * experts] of [assignments | scores].
int64_t balance_sums_workspace_bytes(const base::RowOrder& order, int64_t experts);
template <class S>
void balance_sums(const base::RowOrder& order, int64_t experts, int64_t k, const S* scores,
                  const int32_t* chosen, S* sums, void* workspace, Stream stream);

// dscores[rows, experts]: every row gets the scores half of its sequence's dsums.
template <class S>
void balance_dx(const base::RowOrder& order, int64_t experts, const S* dsums, S* dscores, Stream stream);

template <class S>
void balance_loss(const BalanceLoss& s, const S* sums, const double* running, double* loss, bool accumulate,
                  S* slope, Stream stream);

// loss = (or +=) coefficient * sum over rows of l^2, l = log sum exp(logits).
int64_t z_loss_workspace_bytes(int64_t rows);
template <class S>
void z_loss(const S* logits, int64_t rows, int64_t experts, double coefficient, double* loss, bool accumulate,
            void* workspace, Stream stream);
// dlogits = *dloss * coefficient * 2 l softmax(logits)
template <class S>
void z_loss_dx(const S* logits, int64_t rows, int64_t experts, double coefficient, const double* dloss,
               S* dlogits, Stream stream);

// bias[i] += rate * sign(mean of load[0 .. experts) - load[i]), sign(0) = 0; nothing when *ok is 0.
template <class S>
void update_bias(const double* load, int64_t experts, double rate, const double* ok, S* bias, Stream stream);

}  // namespace quintet::kernels::cuda
