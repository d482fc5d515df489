// Grouped GEMM: one matmul per expert, over the rows that were routed to it, with the meaning of
// kernels::GroupedArgs on device pointers: the number of rows per expert is read on the device, so the call
// can be captured.
//
// Bits: an element depends on its row and column of the operands alone. Counts that add up to more than
// `rows` are truncated there.
#pragma once

#include "kernels/cuda/support/types.h"
#include "kernels/gemm_args.h"

namespace quintet::kernels::cuda {

// Types: f64 -> f64, f32 -> f32, bf16 -> f32 or bf16, f16 -> f32 or f16.
int64_t grouped_workspace_bytes(const GroupedArgs& shape);
void grouped_linear(const GroupedArgs& args, void* workspace, Stream stream);
void grouped_linear_dx(const GroupedArgs& args, void* workspace, Stream stream);
void grouped_linear_dw(const GroupedArgs& args, void* workspace, Stream stream);

}  // namespace quintet::kernels::cuda
