#include "kernels/cpu/loss/loss.h"

#include "kernels/cpu/support/isa.h"

namespace quintet::kernels::cpu {

QUINTET_SELECT_VARIANT(loss_variants, LossVariants)

template <class T>
void row_max(const T* logits, int64_t rows, int64_t columns, int64_t valid, Stat<T>* max, ThreadPool& pool) {
  variants<T>().row_max(logits, rows, columns, valid, max, pool);
}

template <class T>
void row_sumexp(const T* logits, int64_t rows, int64_t columns, int64_t valid, int64_t vocab_begin,
                const int32_t* labels, const Stat<T>* max, Stat<T>* sumexp, Stat<T>* target,
                ThreadPool& pool) {
  variants<T>().row_sumexp(logits, rows, columns, valid, vocab_begin, labels, max, sumexp, target, pool);
}

template <class T>
void cross_entropy_backward(T* logits, int64_t rows, int64_t columns, int64_t valid, int64_t vocab_begin,
                            const int32_t* labels, const Stat<T>* max, const Stat<T>* sumexp,
                            const Stat<T>* target, const double* seed, bool write_dlogits, double* loss_sum,
                            bool accumulate, double* row_loss, void* workspace, ThreadPool& pool) {
  variants<T>().cross_entropy_backward(logits, rows, columns, valid, vocab_begin, labels, max, sumexp, target,
                                       seed, write_dlogits, loss_sum, accumulate, row_loss, workspace, pool);
}

template <class T>
void cross_entropy(T* logits, int64_t rows, int64_t columns, int64_t valid, const int32_t* labels,
                   const double* seed, bool write_dlogits, double* loss_sum, bool accumulate,
                   double* row_loss, void* workspace, ThreadPool& pool) {
  variants<T>().cross_entropy(logits, rows, columns, valid, labels, seed, write_dlogits, loss_sum, accumulate,
                              row_loss, workspace, pool);
}

int64_t cross_entropy_workspace_bytes(int64_t rows) { return rows * static_cast<int64_t>(sizeof(double)); }

#define INSTANTIATE(T)                                                    \
  template decltype(row_max<T>) row_max<T>;                               \
  template decltype(row_sumexp<T>) row_sumexp<T>;                         \
  template decltype(cross_entropy_backward<T>) cross_entropy_backward<T>; \
  template decltype(cross_entropy<T>) cross_entropy<T>;
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bf16)
INSTANTIATE(F16)
#undef INSTANTIATE

}  // namespace quintet::kernels::cpu
