// Embedding and loss.
#include "exec/cuda/gradients.h"
#include "exec/decode/vocab.h"
#include "kernels/cuda/embedding/embedding.h"
#include "kernels/cuda/loss/loss.h"

namespace quintet::exec::cuda {
namespace {

namespace k = kernels::cuda;

}  // namespace

const std::vector<Kernel>& vocab_kernels() {
  static const std::vector<Kernel> table = {
      {&graph::kEmbedding,
       [](const Bound& b, bool) {
         decode::embedding(b, [&]<class T>(T, auto... a) { k::embedding<T>(a..., b.stream); });
       }},
      {&graph::kEmbeddingDw,
       [](const Bound& b, bool accumulate) {
         decode::embedding_dw(b, accumulate,
                              [&]<class T>(T, auto... a) { k::embedding_dw<T>(a..., b.stream); });
       }},
      {&graph::kRowMax,
       [](const Bound& b, bool) {
         decode::row_max(b, [&]<class T>(T, auto... a) { k::row_max<T>(a..., b.stream); });
       }},
      {&graph::kRowSumExp,
       [](const Bound& b, bool) {
         decode::row_sum_exp(b, [&]<class T>(T, auto... a) { k::row_sumexp<T>(a..., b.stream); });
       }},
      {&graph::kLossGrad,
       [](const Bound& b, bool accumulate) {
         decode::loss_grad(b, accumulate, [&]<class T>(T, auto... a) {
           k::cross_entropy_backward<T>(a..., b.workspace, b.stream);
         });
       }},
      {&graph::kCrossEntropy,
       [](const Bound& b, bool accumulate) {
         decode::cross_entropy(
             b, accumulate, [&]<class T>(T, auto... a) { k::cross_entropy<T>(a..., b.workspace, b.stream); });
       }},
  };
  return table;
}

}  // namespace quintet::exec::cuda
