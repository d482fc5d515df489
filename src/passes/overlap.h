// Hides messages between ranks behind compute. Within a block, nodes are put into an order in which the
// compute stream has other work while a message is in flight that its next node waits for: shared experts run
// while rows are sent to experts and back, gradients of weights while gradients of activations are sent.
//
// The values stay the same, and so do adds that another op performs. What is computed earlier, or read later,
// lives longer: a pass costs memory where it saves time. Messages that nothing in the block precedes (saved
// values that are gathered again) stay beside the node that they precede; blocks with ring attention, whose
// hops are in order already, and nodes that are repeated or run chunk by chunk are left alone.
#pragma once

#include "layout/partition.h"

namespace quintet::passes {

// With `splits_backward`, weight gradients run in bodies of their own and hide nothing.
layout::LocalGraph overlap(layout::LocalGraph local, bool splits_backward);

}  // namespace quintet::passes
