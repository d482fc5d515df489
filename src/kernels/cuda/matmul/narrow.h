// Y = X W^T for few rows of X: bound by reading W.
#pragma once

#include "kernels/cuda/support/types.h"
#include "kernels/gemm_args.h"

namespace quintet::kernels::cuda {

inline constexpr int64_t kNarrowRows = 32;       // of X, at most
inline constexpr int64_t kNarrowCounters = 256;  // words, zero before the first call and after every call

// Whether a problem is one: bf16, B transposed and stored without gaps between rows, sizes and addresses of
// whole tiles.
bool is_narrow(const GemmArgs& args);
int64_t narrow_workspace_bytes(const GemmArgs& args);
// The bits of a row of C do not depend on the other rows, nor on their number. `constant`: no kernel on the
// stream writes B, so that it may be read while the previous kernel still runs.
void narrow_matmul(const GemmArgs& args, bool constant, void* workspace, uint32_t* counters, Stream stream);

}  // namespace quintet::kernels::cuda
