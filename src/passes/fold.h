// Folds ops that read the same rows one after the other into one, on the local graph of a rank:
//  - row_max, row_sum_exp and loss_grad become cross_entropy where the whole vocabulary is local;
//  - a norm's gradients (rms_norm_dx and _dw, layer_norm_dx and _dw) become rms_norm_backward,
//    layer_norm_backward;
//  - a norm or SwiGLU that is recomputed for weight gradients only is written by its own backward op, which
//    reads the operands anyway (the norms' with `again`, swiglu_backward). Those weight gradients then run
//    after it, and the norm's statistics are kept from the forward pass (one or two numbers per row);
//  - an add whose sum is normalised in the same block becomes add_rms_norm, add_layer_norm, unless the
//    producer of a term performs the add (graph/fuse_adds.h): residuals after a message, a bias or dropout.
//
// Numerics-preserving: the same sums and products; values keep their ids.
//
// Nothing is folded where ranks exchange the result or the op's dy: weight gradients run while such a message
// is in flight, which saves more than a pass over memory. A sum in one block and its norm in the next stay
// separate too, because blocks may be on different pipeline stages, and weights are gathered block by block.
#pragma once

#include "layout/partition.h"

namespace quintet::passes {

struct FoldOptions {
  bool backward = true;  // false: B and W run separately, so their nodes stay separate
};

layout::LocalGraph fold(layout::LocalGraph local, const FoldOptions& options);

}  // namespace quintet::passes
