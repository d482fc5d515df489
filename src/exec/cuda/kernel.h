// How an instruction is bound to its kernels on a GPU: addresses and library plans are resolved once, then
// each execution is a launch.
#pragma once

#include "base/error.h"
#include "exec/executor.h"
#include "exec/operands.h"
#include "kernels/cuda/support/types.h"

namespace quintet::exec::cuda {

class Libraries;  // handles, plans and tuned algorithms of cuBLASLt and cuDNN (exec/cuda/libraries.h)

struct Kernel;

struct Bound : Operands {
  std::byte* workspace = nullptr;  // of instr->workspace_bytes
  Libraries* libraries = nullptr;
  kernels::cuda::Stream stream = nullptr;
  const std::byte* constants = nullptr;  // device memory that prepare() filled, such as frequencies
  const Kernel* kernel = nullptr;        // of a Compute instruction
};

// What the kernels of exec/bind run on.
inline kernels::cuda::Stream on(const Bound& b) { return b.stream; }

// run() only launches: it neither allocates nor waits, so it can be captured. prepare() is called once,
// before the first run, with all addresses known: it uploads constants, builds plans and tunes.
// The scratch is that of exec/decode/scratch.h.
struct Kernel {
  const graph::OpDef* op;
  void (*run)(const Bound& b, bool accumulate);
  void (*prepare)(Bound& b) = nullptr;  // null: nothing to do
};

// The kernel of an op, built in or one of `extra`; an InternalError when there is none.
const Kernel& find_kernel(const graph::OpDef& op, const std::vector<OpKernels>& extra = {});

}  // namespace quintet::exec::cuda
