// What kernels/cuda is told of an instruction beyond exec/shapes.h: by this its kernels run and its scratch
// is counted.
#pragma once

#include "exec/shapes.h"
#include "kernels/cuda/attention/attention.h"

namespace quintet::exec::cuda {

// The derived key of attention's dropout lies at the start of the scratch.
inline constexpr int64_t kKeyBytes = kernels::cuda::kWorkspaceAlignment;

// Without pointers. q, k, v start at operand `first`, documents and key_documents at `rest`.
kernels::cuda::AttentionShape attention_shape(const program::Instr& instr, size_t first, size_t rest);
// Whether documents are told apart: an instruction that says packed = 0 has one document in every sequence.
kernels::cuda::AttentionMasks masks_of(const program::Instr& instr);
// Whether cuDNN is called through kernels/cuda/attention/hops.h: rows lie as context ranks have them.
bool by_hops(const program::Instr& instr, const kernels::cuda::AttentionShape& shape);
// Whether cuDNN may have a plan and is the faster choice: one document in every sequence, and no gradient of
// heads of 64 or 128 that must have the same bits in every run. q is operand `first`.
bool suits_library(const program::Instr& instr, const kernels::cuda::AttentionShape& shape, size_t first);
// Whether kernels/cuda/attention/tiled.h serves it: any mask in 16 bits. What neither serves runs without
// tensor cores.
bool suits_tiles(const program::Instr& instr, const kernels::cuda::AttentionShape& shape, size_t first);

// What to report of an attention that runs without tensor cores, with the key that helps. Empty for every
// other instruction.
std::string remark_on(const program::Instr& instr);

}  // namespace quintet::exec::cuda
