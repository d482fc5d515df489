#include "exec/decode/vocab.h"

#include "exec/decode/scratch.h"
#include "kernels/cpu/loss/loss.h"
#include "kernels/cuda/embedding/embedding.h"
#include "kernels/cuda/loss/loss.h"

namespace quintet::exec {
namespace {

using program::Instr;

int64_t embedding_dw_bytes(const Instr& i, int) { return sums_bytes(i, {0}); }
int64_t cuda_embedding_dw_bytes(const Instr& i) {
  const graph::Type &dy = i.in[1].type, &table = i.out[0].type;
  return with_type(dy.dtype, [&]<class T>(T) {
    return kernels::cuda::embedding_dw_workspace_bytes<T>(dy.size(0), table.size(0), table.size(1));
  });
}

int64_t loss_bytes(const Instr& i, int) {
  return kernels::cpu::cross_entropy_workspace_bytes(i.in[0].type.size(0));
}
int64_t cuda_loss_bytes(const Instr& i) {
  return kernels::cuda::cross_entropy_workspace_bytes(i.in[0].type.size(0));
}

}  // namespace

const std::vector<Scratch>& vocab_scratch() {
  static const std::vector<Scratch> table = {
      {&graph::kEmbeddingDw, embedding_dw_bytes, cuda_embedding_dw_bytes},
      {&graph::kLossGrad, loss_bytes, cuda_loss_bytes},
      {&graph::kCrossEntropy, loss_bytes, cuda_loss_bytes}};
  return table;
}

}  // namespace quintet::exec
