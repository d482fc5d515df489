// Overlapping launches inside a graph (programmatic dependent launch).
#pragma once

struct CUgraph_st;

namespace quintet::device::cuda {

// Lets this program's kernels launch while their predecessor is still finishing: the edge between the two
// becomes a programmatic one. Our kernels wait for their predecessor in their first statement (await_previous
// in kernels/cuda/support/launch.cuh). Library kernels may not, so edges to them stay as they are, as do
// edges to a kernel that waits for several nodes.
void overlap_launches(::CUgraph_st* graph);

}  // namespace quintet::device::cuda
