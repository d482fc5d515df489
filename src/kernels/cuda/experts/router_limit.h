// Which assignments are dropped when experts have a capacity: kernels/cpu/experts/router_limit.h on device
// memory, with the same decisions.
#pragma once

#include "kernels/cuda/support/types.h"
#include "kernels/routing_shapes.h"

namespace quintet::kernels::cuda {

// At most 65535 groups.
int64_t limit_workspace_bytes(const LimitShape& s);
template <class S>
void limit(const LimitShape& s, const int32_t* chosen, const S* weights, int32_t* kept, void* workspace,
           Stream stream);

// The numbers of the CPU's random_weights; the key is on the device.
void random_weights(const int32_t* samples, const int32_t* positions, const uint64_t* key, double* weights,
                    int64_t rows, int64_t k, Stream stream);

}  // namespace quintet::kernels::cuda
