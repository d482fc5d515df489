// Grouped GEMM: one matmul per expert, over the rows that were routed to it.
//
// Bits: those of one gemm() per expert, whatever the number of threads and the other experts' rows.
#pragma once

#include "kernels/cpu/matmul/gemm.h"

namespace quintet::kernels {

// Sufficient scratch for all three, for any counts.
int64_t grouped_workspace_bytes(const GroupedArgs& shape, int threads);

// y[rows, out] = x[rows, in] w[experts, out, in]^T
void grouped_linear(const GroupedArgs& args, void* workspace, int64_t workspace_bytes,
                    device::ThreadPool& pool);
// dx[rows, in] = dy[rows, out] w[experts, out, in], plus the addend if any
void grouped_linear_dx(const GroupedArgs& args, void* workspace, int64_t workspace_bytes,
                       device::ThreadPool& pool);
// dw[experts, out, in] (+)= dy[rows, out]^T x[rows, in]; zero, or unchanged, where an expert has no rows
void grouped_linear_dw(const GroupedArgs& args, void* workspace, int64_t workspace_bytes,
                       device::ThreadPool& pool);

}  // namespace quintet::kernels
