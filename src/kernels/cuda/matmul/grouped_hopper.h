// Grouped GEMM of bf16 or f16 on Hopper's asynchronous tensor cores. grouped_matmul.cu calls it and handles
// everything else: other GPUs and types, widths that are not multiples of 8, addresses not aligned to 16
// bytes, more than 1024 experts.
#pragma once

#include "kernels/cuda/support/types.h"
#include "kernels/gemm_args.h"

namespace quintet::kernels::cuda {

enum class GroupedGemm { Forward, Dx, Dw };

// begin[experts + 1]: where each expert's rows begin. False, with nothing launched, where it does not apply.
bool grouped_on_hopper(GroupedGemm which, const GroupedArgs& args, const int64_t* begin, Stream stream);

}  // namespace quintet::kernels::cuda
