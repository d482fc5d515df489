#include "kernels/cpu/embedding/embedding.h"

#include "kernels/cpu/support/isa.h"

namespace quintet::kernels::cpu {

QUINTET_SELECT_VARIANT(embedding_variants, EmbeddingVariants)

template <class T>
void embedding(const T* table, const int32_t* ids, int64_t vocab_begin, int64_t vocab_local, T* y,
               int64_t tokens, int64_t n, ThreadPool& pool) {
  variants<T>().embedding(table, ids, vocab_begin, vocab_local, y, tokens, n, pool);
}

template <class T>
void embedding_dw(const T* dy, const int32_t* ids, int64_t vocab_begin, int64_t vocab_local, Grad<T>* dtable,
                  bool accumulate, int64_t tokens, int64_t n, ThreadPool& pool) {
  variants<T>().embedding_dw(dy, ids, vocab_begin, vocab_local, dtable, accumulate, tokens, n, pool);
}

#define INSTANTIATE(T)                          \
  template decltype(embedding<T>) embedding<T>; \
  template decltype(embedding_dw<T>) embedding_dw<T>;
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bf16)
INSTANTIATE(F16)
#undef INSTANTIATE

}  // namespace quintet::kernels::cpu
