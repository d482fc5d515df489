// Cross-entropy over a shard of the vocabulary: logits[rows, columns] hold global columns vocab_begin ...;
// columns at or past `valid` are padding, count as -inf and get a zero gradient. Labels are global ids; rows
// with a negative label are ignored. With the vocabulary sharded over ranks the order is: row_max, all-reduce
// max, row_sumexp, all-reduce sum of sumexp and target, cross_entropy_backward. Rows may be any chunk of a
// batch: loss_sum accumulates over chunks.
#pragma once

#include "kernels/cuda/support/types.h"

namespace quintet::kernels::cuda {

// max[r] over the valid columns; -inf when there are none. A NaN logit gives NaN.
template <class T>
void row_max(const T* logits, int64_t rows, int64_t columns, int64_t valid, Stat<T>* max, Stream stream);

// sumexp[r] = sum over valid columns of exp(logit - max[r]); target[r] = the label's logit, or 0 when the
// label is not in this shard or is negative.
template <class T>
void row_sumexp(const T* logits, int64_t rows, int64_t columns, int64_t valid, int64_t vocab_begin,
                const int32_t* labels, const Stat<T>* max, Stat<T>* sumexp, Stat<T>* target, Stream stream);

// From max, sumexp and target over the whole vocabulary:
//   loss_sum = (or +=) sum over rows with label >= 0 of log(sumexp) + max - target      (seed not applied)
//   logits   = dlogits = *seed * (softmax - onehot), 0 for negative labels and padding  (when write_dlogits)
//   row_loss[r] = the row's loss, 0 for negative labels                                 (when not null)
// The workspace is used when row_loss is null, else it may be null.
int64_t cross_entropy_workspace_bytes(int64_t rows);
template <class T>
void cross_entropy_backward(T* logits, int64_t rows, int64_t columns, int64_t valid, int64_t vocab_begin,
                            const int32_t* labels, const Stat<T>* max, const Stat<T>* sumexp,
                            const Stat<T>* target, const double* seed, bool write_dlogits, double* loss_sum,
                            bool accumulate, double* row_loss, void* workspace, Stream stream);

// The same in one pass over each row when the whole vocabulary is local (vocab_begin 0). seed may be null
// when write_dlogits is false.
template <class T>
void cross_entropy(T* logits, int64_t rows, int64_t columns, int64_t valid, const int32_t* labels,
                   const double* seed, bool write_dlogits, double* loss_sum, bool accumulate,
                   double* row_loss, void* workspace, Stream stream);

}  // namespace quintet::kernels::cuda
