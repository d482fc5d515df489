// Saved activations divided over the tensor ranks without sequence parallelism (memory.split_saved): of a
// value that every tensor rank has whole, and that the backward pass reads, each rank keeps its part of the
// token rows. The backward pass gathers it before its first use.
//
// Bit-equal: rows are copied and joined again. Costs an all-gather over tp per value and micro-batch. Values
// of which the ranks have parts already, and those of the head's chunks, are left alone.
#pragma once

#include "layout/partition.h"

namespace quintet::passes {

layout::LocalGraph divide_saved(layout::LocalGraph local, const layout::Layout& layout);

}  // namespace quintet::passes
