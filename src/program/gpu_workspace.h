// Scratch that the kernels of a GPU need for an instruction, as a plan counts it: a function of the
// instruction alone, known where there is no GPU. The CUDA backend's own figures must not be larger.
#pragma once

#include "program/program.h"

namespace quintet::program {

// What a library of matrix products may use; tuners keep to it.
inline constexpr int64_t kGpuMatmulWorkspace = int64_t{32} << 20;

// Matrix products (and what is smaller on any shape: norms, sums over rows, squares): the cap above.
// Attention's backward pass: dQ in f32 and two f32 per row and head. Gradients of embeddings: the sorted ids
// and two rows of f32 for every 16 tokens. Losses: one f64 per row.
int64_t gpu_workspace_bytes(const Instr& instr);

}  // namespace quintet::program
