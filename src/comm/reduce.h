// The arithmetic of reductions, shared by all backends so that they agree bit for bit.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "comm/communicator.h"

namespace quintet::comm {

// For every target t: targets[t][i] := sources[0][i] op sources[1][i] op ..., in this order, for `count`
// elements. Elements are read before they are written, so a target may be one of the sources; no other
// overlap. Requires no alignment beyond that of the element type.
void reduce_in_order(const void* const* sources, int source_count, void* const* targets, int target_count,
                     int64_t count, base::DType dtype, ReduceOp op);

}  // namespace quintet::comm
