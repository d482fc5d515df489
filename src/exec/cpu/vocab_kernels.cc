// Embedding and loss.
#include "exec/cpu/gradients.h"
#include "exec/decode/vocab.h"
#include "kernels/cpu/embedding/embedding.h"
#include "kernels/cpu/loss/loss.h"

namespace quintet::exec::cpu {
namespace {

namespace k = kernels::cpu;

}  // namespace

const std::vector<Kernel>& vocab_kernels() {
  static const std::vector<Kernel> table = {
      {&graph::kEmbedding,
       [](const Bound& b, bool) {
         decode::embedding(b, [&]<class T>(T, auto... a) { k::embedding<T>(a..., *b.pool); });
       }},
      {&graph::kEmbeddingDw,
       [](const Bound& b, bool accumulate) {
         decode::embedding_dw(b, accumulate,
                              [&]<class T>(T, auto* dy, auto* ids, int64_t begin, int64_t local, auto* dtable,
                                           bool add, int64_t tokens, int64_t n, std::byte*) {
                                k::embedding_dw<T>(dy, ids, begin, local, dtable, add, tokens, n, *b.pool);
                              });
       }},
      {&graph::kRowMax,
       [](const Bound& b, bool) {
         decode::row_max(b, [&]<class T>(T, auto... a) { k::row_max<T>(a..., *b.pool); });
       }},
      {&graph::kRowSumExp,
       [](const Bound& b, bool) {
         decode::row_sum_exp(b, [&]<class T>(T, auto... a) { k::row_sumexp<T>(a..., *b.pool); });
       }},
      {&graph::kLossGrad,
       [](const Bound& b, bool accumulate) {
         decode::loss_grad(b, accumulate, [&]<class T>(T, auto... a) {
           k::cross_entropy_backward<T>(a..., b.workspace, *b.pool);
         });
       }},
      {&graph::kCrossEntropy,
       [](const Bound& b, bool accumulate) {
         decode::cross_entropy(
             b, accumulate, [&]<class T>(T, auto... a) { k::cross_entropy<T>(a..., b.workspace, *b.pool); });
       }},
  };
  return table;
}

}  // namespace quintet::exec::cpu
