// Lookup in a shard of the embedding table, and its gradient.
#pragma once

#include "kernels/cpu/support/types.h"

namespace quintet::kernels::cpu {

// y[t] = table[ids[t] - vocab_begin], or zeros when the id is outside [vocab_begin, vocab_begin +
// vocab_local). Negative ids are padding and give zeros.
template <class T>
void embedding(const T* table, const int32_t* ids, int64_t vocab_begin, int64_t vocab_local, T* y,
               int64_t tokens, int64_t n, ThreadPool& pool);

// dtable[id - vocab_begin] += dy[t], tokens in order; without `accumulate` the table is zeroed first. Ids
// outside the shard, and negative ids, are skipped.
template <class T>
void embedding_dw(const T* dy, const int32_t* ids, int64_t vocab_begin, int64_t vocab_local, Grad<T>* dtable,
                  bool accumulate, int64_t tokens, int64_t n, ThreadPool& pool);

// The builds per instruction set (support/isa.h).
template <class T>
struct EmbeddingVariants {
  decltype(&cpu::embedding<T>) embedding;
  decltype(&cpu::embedding_dw<T>) embedding_dw;
};

}  // namespace quintet::kernels::cpu
