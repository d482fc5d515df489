// Y = X W^T for few rows of X: bound by reading W.
#pragma once

#include "kernels/cuda/support/types.h"
#include "kernels/gemm_args.h"

namespace quintet::kernels::cuda {

inline constexpr int64_t kNarrowRows = 32;  // of X, at most

// Whether a problem is one: bf16, B transposed and stored without gaps between rows, sizes and addresses of
// whole vectors.
bool is_narrow(const GemmArgs& args);
// The bits of a row of C do not depend on the other rows, nor on their number.
void narrow_matmul(const GemmArgs& args, Stream stream);

}  // namespace quintet::kernels::cuda
