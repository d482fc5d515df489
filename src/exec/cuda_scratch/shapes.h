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
// Whether cuDNN may have a plan; q is operand `first`.
bool suits_library(const program::Instr& instr, const kernels::cuda::AttentionShape& shape, size_t first);

// What to tell of an attention that cuDNN cannot have a plan for, with the key that helps: our own kernels,
// which use no tensor cores, serve it. Empty for every other instruction.
std::string remark_on(const program::Instr& instr);
// Most documents of a micro-batch with which cuDNN serves this attention; a batch that has more is served by
// our own kernels for that one call. 0: any number, or an instruction that cuDNN has no part in.
int64_t most_documents(const program::Instr& instr);
// The sentence of such a remark.
std::string without_tensor_cores(bool backward, std::string_view why);

}  // namespace quintet::exec::cuda
