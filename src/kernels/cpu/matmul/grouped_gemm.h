// Grouped GEMM: one matmul per expert, over the rows that were routed to it.
//
// `received` holds sources x experts counts; an expert's rows are the sum of its counts over the sources.
// They are contiguous, in expert order, together at most `rows`. Rows past them are neither read nor written.
// An expert may have no rows, or all.
//
// Bits: those of one gemm() per expert, whatever the number of threads and the other experts' rows.
#pragma once

#include "kernels/cpu/matmul/gemm.h"

namespace quintet::kernels {

struct GroupedArgs {
  int64_t rows = 0;     // upper bound
  int64_t experts = 0;  // of this rank
  int64_t out = 0, in = 0;
  int64_t sources = 1;
  const int32_t* received = nullptr;
  const void* a = nullptr;  // x, or dy
  const void* b = nullptr;  // w, or x for dw
  void* c = nullptr;
  base::DType type = base::DType::F32, c_type = base::DType::F32;
  bool accumulate = false;       // dw only
  const void* addend = nullptr;  // dx only: added to it row by row; may be c
};

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
