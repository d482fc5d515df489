// Load balancing of experts: loads, the sums and slopes of balance losses, the z-loss, the selection bias.
// S is the type of logits and scores: double or float. Sums over rows are computed in double.
#pragma once

#include "base/row_order.h"
#include "kernels/cpu/support/types.h"
#include "kernels/routing_shapes.h"

namespace quintet::kernels::cpu {

// load[experts + 2] = (or +=): rows that chose each expert, choices that were dropped (kept < 0), sum over
// rows of -sum p log p with p the row's scores.
int64_t expert_load_workspace_bytes(const LoadShape& s);
template <class S>
void expert_load(const LoadShape& s, const int32_t* chosen, const int32_t* kept, const S* scores,
                 double* load, bool accumulate, void* workspace, ThreadPool& pool);

// Per sequence of `order` (rows of all ranks): sums[sequences, 2 * experts] of [assignments | scores].
int64_t balance_sums_workspace_bytes(const base::RowOrder& order, int64_t experts);
template <class S>
void balance_sums(const base::RowOrder& order, int64_t experts, int64_t k, const S* scores,
                  const int32_t* chosen, S* sums, void* workspace, ThreadPool& pool);

// dscores[rows, experts]: every row gets the scores half of its sequence's dsums.
template <class S>
void balance_dx(const base::RowOrder& order, int64_t experts, const S* dsums, S* dscores, ThreadPool& pool);

// loss = (or +=) coefficient / groups * experts * sum over local groups and experts of f P, with P = scores /
// tokens and f = assignments / (k * tokens), or with `running` (null: none) its assignments over their total.
// slope[groups_here, 2 * experts] = dloss / dsums, where assignments are constants: 0 in their half. The
// slope is always overwritten.
template <class S>
void balance_loss(const BalanceLoss& s, const S* sums, const double* running, double* loss, bool accumulate,
                  S* slope);

// loss = (or +=) coefficient * sum over rows of l^2, l = log sum exp(logits).
int64_t z_loss_workspace_bytes(int64_t rows);
template <class S>
void z_loss(const S* logits, int64_t rows, int64_t experts, double coefficient, double* loss, bool accumulate,
            void* workspace, ThreadPool& pool);
// dlogits = *dloss * coefficient * 2 l softmax(logits)
template <class S>
void z_loss_dx(const S* logits, int64_t rows, int64_t experts, double coefficient, const double* dloss,
               S* dlogits, ThreadPool& pool);

// bias[i] += rate * sign(mean of load[0 .. experts) - load[i]), sign(0) = 0.
template <class S>
void update_bias(const double* load, int64_t experts, double rate, S* bias);

}  // namespace quintet::kernels::cpu
