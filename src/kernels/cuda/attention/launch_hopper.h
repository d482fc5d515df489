// Launches the kernels of hopper_forward.cuh, hopper_backward.cuh, hopper_pair.cuh and hopper_fused.cuh.
#pragma once

#include "kernels/cuda/attention/problem.cuh"

namespace quintet::kernels::cuda {

// Blocks to launch, one per SM; 0 where the GPU or the build has no such kernels.
int hopper_blocks();
// Groups of at most kHopperGroup query heads.
bool suits_hopper(const TiledProblem& problem);

// Set the problem's packing and tiles; `order` must be for tiles of these sizes.
int hopper_forward_tokens(HeadSizes sizes, const TiledProblem& problem);
int hopper_dq_tokens(const TiledProblem& problem);
template <class T>
void launch_hopper_forward(HeadSizes sizes, TiledProblem problem, int blocks, int64_t tiles, Stream stream);
template <class T>
void launch_hopper_dq(HeadSizes sizes, TiledProblem problem, int blocks, int64_t tiles, Stream stream);
template <class T>
void launch_hopper_dkv(HeadSizes sizes, TiledProblem problem, int blocks, int64_t tiles, Stream stream);
// The same where hopper_pairs(); called by launch_hopper_dkv().
template <class T>
void launch_hopper_pair(HeadSizes sizes, TiledProblem problem, int blocks, int64_t tiles, Stream stream);
// All of the backward pass, for `kv_heads` KV heads at a time; fuses_backward() says when.
template <class T>
void launch_hopper_fused(HeadSizes sizes, TiledProblem problem, int blocks, int64_t key_tiles,
                         int64_t kv_heads, Stream stream);

}  // namespace quintet::kernels::cuda
