// Arguments of kernels/cuda beyond exec/shapes.h: its kernels run by these and its scratch is computed from
// them.
#pragma once

#include "exec/shapes.h"
#include "kernels/cuda/attention/attention.h"

namespace quintet::exec::cuda {

// The derived key of attention's dropout is at the start of the scratch.
inline constexpr int64_t kKeyBytes = kernels::cuda::kWorkspaceAlignment;

// Without pointers. q, k, v start at operand `first`, documents and key_documents at `rest`.
kernels::cuda::AttentionShape attention_shape(const program::Instr& instr, size_t first, size_t rest);
// Whether documents must be distinguished: an instruction with packed = 0 has one document per sequence.
kernels::cuda::AttentionMasks masks_of(const program::Instr& instr);
// Whether cuDNN is called through kernels/cuda/attention/hops.h: rows are in the order of context ranks.
bool by_hops(const program::Instr& instr, const kernels::cuda::AttentionShape& shape);
// Whether cuDNN may have a plan and is the faster choice: one document in every sequence, and no
// deterministic gradient of heads of 64 or 128. q is operand `first`.
bool suits_library(const program::Instr& instr, const kernels::cuda::AttentionShape& shape, size_t first);
// Whether kernels/cuda/attention/tiled.h handles it: any mask in 16 bits. What neither handles runs without
// tensor cores.
bool suits_tiles(const program::Instr& instr, const kernels::cuda::AttentionShape& shape, size_t first);

// A remark about attention that runs without tensor cores, with the recipe key that helps. Empty for all
// other instructions.
std::string remark_on(const program::Instr& instr);

}  // namespace quintet::exec::cuda
