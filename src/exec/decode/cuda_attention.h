// Selects CUDA's kernels for an attention, and their scratch. Sequences of one document each run on cuDNN or
// on the tiled kernels, whichever is faster (exec/cuda/attention_choices.h): the scratch is enough for both.
// The tiled kernels run every other mask and what cuDNN has no plan for, in 16 bits; the rest runs without
// tensor cores.
#pragma once

#include <string>

#include "exec/decode/attention.h"
#include "kernels/cuda/attention/attention.h"

namespace quintet::exec::cuda {

// The derived dropout key is at the start of the scratch.
inline constexpr int64_t kKeyBytes = kernels::cuda::kWorkspaceAlignment;
// The masks for which cuDNN is used.
inline constexpr kernels::cuda::AttentionMasks kLibraryMasks = kernels::cuda::AttentionMasks::Dense;

// Without pointers.
kernels::cuda::AttentionShape attention_shape(const program::Instr& instr);
// Whether cuDNN is called through kernels/cuda/attention/hops.h: rows are in the order of context ranks.
bool by_hops(const program::Instr& instr, const kernels::cuda::AttentionShape& shape);
// Whether cuDNN may have a plan: one document in every sequence, no soft cap, and no deterministic gradient,
// which the tiled kernels compute faster and without a score matrix in scratch.
bool suits_library(const program::Instr& instr, const kernels::cuda::AttentionShape& shape);
// Whether kernels/cuda/attention/tiled.h handles it: any mask in 16 bits.
bool suits_tiles(const program::Instr& instr, const kernels::cuda::AttentionShape& shape);

// Scratch of an attention, forward or backward.
int64_t attention_bytes(const program::Instr& instr);

// What a measured choice between cuDNN and the tiled kernels depends on, apart from the GPU.
std::string problem_text(const program::Instr& instr, const kernels::cuda::AttentionShape& shape);

// A remark about attention that runs without tensor cores, with the recipe key that helps. Empty for all
// other instructions.
std::string remark_on(const program::Instr& instr);

}  // namespace quintet::exec::cuda
