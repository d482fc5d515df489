// Folds quantisation into the op that computes the quantised value, on the local graph of a rank, after
// passes/pack.h: an RMSNorm (with the sum before it), SwiGLU and its gradient make codes of their results
// instead of storing them (graph/ops/quantize_fused.cc). Only where nothing else reads the value; a norm or
// SwiGLU that the backward pass recomputes only for its codes writes only the codes.
//
// Numerics-preserving: the value is rounded to its own type before it is quantised.
#pragma once

#include "layout/partition.h"

namespace quintet::passes {

layout::LocalGraph fold_codes(layout::LocalGraph local);

}  // namespace quintet::passes
