#pragma once

#include "kernels/cpu/embedding.h"

namespace quintet::kernels::cpu {

template <class T>
struct EmbeddingVariants {
  decltype(&cpu::embedding<T>) embedding;
  decltype(&cpu::embedding_dw<T>) embedding_dw;
};

}  // namespace quintet::kernels::cpu
