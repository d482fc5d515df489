// narrow_matmul() on Hopper.
#pragma once

#include "kernels/cuda/support/types.h"
#include "kernels/gemm_args.h"

namespace quintet::kernels::cuda {

// False, and nothing is launched, where the GPU or the build lacks the instructions, or addresses and strides
// do not fit its copies. Otherwise as narrow_matmul(), without a workspace.
bool narrow_on_hopper(const GemmArgs& args, bool constant, Stream stream);

}  // namespace quintet::kernels::cuda
