// Launches the kernels of hopper_forward.cuh, hopper_backward.cuh and hopper_fused.cuh.
#pragma once

#include "kernels/cuda/attention/problem.cuh"

namespace quintet::kernels::cuda {

// Blocks to launch, one per SM; 0 where the GPU or the build has no such kernels.
int hopper_blocks();
// Heads of 64 or 128 elements, groups of at most 64 query heads, no soft cap, no dropout, backward no sinks.
bool suits_hopper(const TiledProblem& problem, bool backward);

// Sets the problem's packing and tiles; `order` must be for tiles of these sizes.
int hopper_forward_tokens(const TiledProblem& problem);
int hopper_dq_tokens(const TiledProblem& problem);
template <class T>
void launch_hopper_forward(TiledProblem problem, int blocks, int64_t tiles, Stream stream);
template <class T>
void launch_hopper_dq(TiledProblem problem, int blocks, int64_t tiles, Stream stream);
template <class T>
void launch_hopper_dkv(TiledProblem problem, int blocks, int64_t tiles, Stream stream);
// All of the backward pass, for `kv_heads` KV heads at a time; fuses_backward() says when.
template <class T>
void launch_hopper_fused(TiledProblem problem, int blocks, int64_t key_tiles, int64_t kv_heads,
                         Stream stream);

}  // namespace quintet::kernels::cuda
