// Grouped products of bf16 or f16 on Hopper's asynchronous tensor cores, for grouped_matmul.cu, which serves
// everything else: other cards and types, widths that are no multiples of 8, addresses that are none of 16
// bytes, more than 1024 experts.
#pragma once

#include "kernels/cpu/matmul/grouped_gemm.h"
#include "kernels/cuda/support/types.h"

namespace quintet::kernels::cuda {

enum class GroupedProduct { Forward, Dx, Dw };

// begin[experts + 1]: where each expert's rows begin. False, and nothing launched, where it cannot serve.
bool grouped_on_hopper(GroupedProduct which, const GroupedArgs& args, const int64_t* begin, Stream stream);

}  // namespace quintet::kernels::cuda
