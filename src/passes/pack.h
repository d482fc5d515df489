// Lays the projections of one input side by side, on the local graph of a rank, where everything that touches
// them can do so: q, k and v of attention, from the matrices that make them through rotary positions to
// attention, and back; gate and up of SwiGLU. Products of a few columns become one of many, forward, for the
// input's gradient and for the weights' gradients; rotary positions are one visit; and the input's gradient
// is summed inside the product instead of in memory.
//
// Left as they are: projections with a bias or a norm of their own, frozen ones, those of parameters that
// several layers share or whose gradients are summed over ranks first (fewer KV heads than tensor ranks),
// values that ranks exchange (context parallelism), and attention with dropout.
#pragma once

#include "layout/partition.h"

namespace quintet::passes {

layout::LocalGraph pack(layout::LocalGraph local);

}  // namespace quintet::passes
