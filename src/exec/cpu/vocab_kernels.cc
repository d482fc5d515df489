// Embedding and loss.
#include "exec/cpu/gradients.h"
#include "exec/decode/vocab.h"
#include "kernels/cpu/embedding/embedding.h"
#include "kernels/cpu/loss/loss.h"

namespace quintet::exec::cpu {
namespace {

namespace k = kernels::cpu;

void embedding_dw(const Bound& b, bool accumulate) {
  decode::embedding_dw(b, accumulate,
                       [&]<class T>(T, auto* dy, auto* ids, int64_t begin, int64_t local, auto* dtable,
                                    bool add, int64_t tokens, int64_t n, std::byte*) {
                         k::embedding_dw<T>(dy, ids, begin, local, dtable, add, tokens, n, *b.pool);
                       });
}

}  // namespace

#include "exec/bind/vocab.inc"

}  // namespace quintet::exec::cpu
