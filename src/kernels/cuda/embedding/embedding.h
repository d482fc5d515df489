// Lookup in a shard of the embedding table, and its gradient.
#pragma once

#include "kernels/cuda/support/types.h"

namespace quintet::kernels::cuda {

// y[t] = table[ids[t] - vocab_begin], or zeros when the id is outside [vocab_begin, vocab_begin +
// vocab_local). Negative ids are padding and give zeros.
template <class T>
void embedding(const T* table, const int32_t* ids, int64_t vocab_begin, int64_t vocab_local, T* y,
               int64_t tokens, int64_t n, Stream stream);

// dtable[id - vocab_begin] += the sum of dy[t] over the tokens with that id, added in Stat<T> in an order
// that depends on the ids alone; without `accumulate` the whole table is written, with zeros in rows without
// tokens. Ids outside the shard, and negative ids, are skipped. D is Grad<T>, or Bf16 for T = Bf16: then one
// rounding per id. At most 2^30 tokens.
template <class T>
int64_t embedding_dw_workspace_bytes(int64_t tokens, int64_t vocab_local, int64_t n);
template <class T, class D>
void embedding_dw(const T* dy, const int32_t* ids, int64_t vocab_begin, int64_t vocab_local, D* dtable,
                  bool accumulate, int64_t tokens, int64_t n, void* workspace, Stream stream);

}  // namespace quintet::kernels::cuda
