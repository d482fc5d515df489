// Launches that overlap inside a graph (programmatic dependent launch).
#pragma once

struct CUgraph_st;

namespace quintet::device::cuda {

// Lets kernels of this program take their places while the kernel before them still ends: the edge between
// the two becomes a programmatic one. A kernel of ours waits for the end of the one before it by itself, in
// its first statement (await_previous in kernels/cuda/support/launch.cuh); kernels of libraries may not, so
// edges to them stay as they are, and so do those of a kernel that waits for several nodes.
void overlap_launches(::CUgraph_st* graph);

}  // namespace quintet::device::cuda
