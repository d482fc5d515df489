// Which assignments are dropped when experts have a capacity: kernels/cpu/experts/router_limit.h on device
// memory, with the same decisions.
#pragma once

#include "kernels/cpu/experts/router_limit.h"
#include "kernels/cuda/support/types.h"

namespace quintet::kernels::cuda {

using cpu::LimitShape;

// At most 65535 groups.
int64_t limit_workspace_bytes(const LimitShape& s);
template <class S>
void limit(const LimitShape& s, const int32_t* chosen, const S* weights, int32_t* kept, void* workspace,
           Stream stream);

}  // namespace quintet::kernels::cuda
