// Packs projections of one input into one value, on the local graph of a rank, where every op on them
// supports it: q, k and v of attention, from their weights through rotary positions to attention, and back;
// gate and up of SwiGLU. Narrow matmuls become one wide one, forward, for the input's gradient and for the
// weights' gradients; rotary positions take one pass; and the input's gradient is summed inside the matmul
// instead of in memory.
//
// Not packed: projections with a bias or a norm of their own, frozen ones, those of parameters that several
// layers share or whose gradients are first summed over ranks (fewer KV heads than tensor ranks), values that
// ranks exchange (context parallelism), and attention with dropout. In text generation, attention to a cache
// (graph/ops/cache.cc) is packed, the first pass over a prompt is not.
#pragma once

#include "layout/partition.h"

namespace quintet::passes {

layout::LocalGraph pack(layout::LocalGraph local);

}  // namespace quintet::passes
