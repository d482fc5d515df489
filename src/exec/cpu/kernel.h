// How an instruction is bound to its kernel on the CPU: pointers are resolved once, then each execution is a
// plain function call.
#pragma once

#include "base/error.h"
#include "device/thread_pool.h"
#include "exec/executor.h"
#include "exec/operands.h"
#include "exec/with_type.h"

namespace quintet::exec::cpu {

struct Kernel;

struct Bound : Operands {
  std::byte* workspace = nullptr;
  device::ThreadPool* pool = nullptr;
  const Kernel* kernel = nullptr;  // of a Compute instruction
};

// What the kernels of exec/bind run on.
inline device::ThreadPool& on(const Bound& b) { return *b.pool; }

struct Kernel {
  const graph::OpDef* op;
  void (*run)(const Bound& b, bool accumulate);
  // For an op that is not built in; the scratch of built-in ops is in exec/decode/scratch.h.
  int64_t (*workspace_bytes)(const program::Instr& instr, int threads) = nullptr;
};

// The kernel of an op, built in or one of `extra`; an InternalError when there is none.
const Kernel& find_kernel(const graph::OpDef& op, const std::vector<OpKernels>& extra = {});

// Scratch that an instruction needs with `threads` threads: the compiler plans this for the CPU backend.
int64_t workspace_bytes(const program::Instr& instr, int threads, const std::vector<OpKernels>& extra = {});

}  // namespace quintet::exec::cpu
