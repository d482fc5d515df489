// Further passes over experts. Where a rank may receive more rows than are planned for (split_rows), the
// exchange, the experts' computation and its gradients are repeated for the rows past the first pass, in the
// same buffers for every pass. What they add to is what the first pass computed; activations of further
// passes are not kept but recomputed in the backward pass. A group of nodes with one Node::repeat:
//
//   pass = next_pass(passes)
//   order, send, received, _ = split_rows(order, counts, pass)
//   ... the nodes of the first pass with these, the last with its result as an addend
//
// (docs/decisions/0024-expert-passes.md)
#pragma once

#include "layout/partition.h"

namespace quintet::passes {

// Gradients of the experts' weights become part of phase B where a schedule would separate them: what W reads
// is not there in further passes.
layout::LocalGraph add_overflow_passes(layout::LocalGraph local, bool splits_backward);

}  // namespace quintet::passes
