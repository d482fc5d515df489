// Embedding and loss.
#include "exec/cuda/gradients.h"
#include "exec/decode/vocab.h"
#include "kernels/cuda/embedding/embedding.h"
#include "kernels/cuda/loss/loss.h"

namespace quintet::exec::cuda {
namespace {

namespace k = kernels::cuda;

void embedding_dw(const Bound& b, bool accumulate) {
  decode::embedding_dw(b, accumulate, [&]<class T>(T, auto... a) { k::embedding_dw<T>(a..., b.stream); });
}

}  // namespace

#include "exec/bind/vocab.inc"

}  // namespace quintet::exec::cuda
