// An op defined outside the built-in rooms, with everything the engine asks about it: the op itself (types,
// gradient, cost, dims), its sharding rule, and its kernels. Nothing registers itself: a model hands its
// packages over with its builder (compiler/custom_model.h).
#pragma once

#include "layout/rule.h"
#include "program/program.h"

namespace quintet::exec::cpu {
struct Kernel;  // exec/cpu/kernel.h
}
namespace quintet::exec::cuda {
struct Kernel;  // exec/cuda/kernel.h
}

namespace quintet::compiler {

struct OpPackage {
  const graph::OpDef* op = nullptr;
  layout::Rule rule = nullptr;               // null: sharded by the op's dims
  const exec::cpu::Kernel* cpu = nullptr;    // null: the op does not run on a CPU
  const exec::cuda::Kernel* cuda = nullptr;  // null: nor on a GPU
  // Scratch of the CUDA kernel; null: none. Outside the kernel, so that plans made without CUDA know it.
  int64_t (*cuda_scratch)(const program::Instr& instr) = nullptr;
};

}  // namespace quintet::compiler
