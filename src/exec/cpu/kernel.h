// How an instruction meets its kernel on the CPU: pointers resolved once, then a plain function call per
// execution.
#pragma once

#include "base/error.h"
#include "device/thread_pool.h"
#include "program/program.h"

namespace quintet::exec::cpu {

// What an instruction has of a dim; null when the op does not divide it.
const program::Part* part_of(const program::Instr& instr, graph::Dim dim);

// Elements of one row of a value whose first dim is rows.
inline int64_t columns(const graph::Type& t) {
  int64_t n = 1;
  for (size_t i = 1; i < t.dims.size(); ++i) n *= t.dims[i].size;
  return n;
}

// An instruction with the addresses of its operands.
struct Bound {
  const program::Instr* instr = nullptr;
  std::vector<std::byte*> in, out;
  std::byte* workspace = nullptr;
  device::ThreadPool* pool = nullptr;

  const graph::Type& in_type(size_t i) const { return instr->in[i].type; }
  const graph::Type& out_type(size_t i) const { return instr->out[i].type; }
  template <class T>
  T* input(size_t i) const {
    return reinterpret_cast<T*>(in[i]);
  }
  template <class T>
  T* output(size_t i) const {
    return reinterpret_cast<T*>(out[i]);
  }
  const program::Part* part(graph::Dim dim) const { return part_of(*instr, dim); }
};

struct Kernel {
  const graph::OpDef* op;
  void (*run)(const Bound& b, bool accumulate);
  int64_t (*workspace_bytes)(const program::Instr& instr, int threads);  // null: none
};

// The kernel of an op; an InternalError when there is none.
const Kernel& find_kernel(const graph::OpDef& op);

// Scratch an instruction needs with `threads` threads: what the compiler plans for this backend.
int64_t workspace_bytes(const program::Instr& instr, int threads);

// The tables, one per file of kernels.
const std::vector<Kernel>& matmul_kernels();  // linear
const std::vector<Kernel>& attention_kernels();
const std::vector<Kernel>& row_kernels();     // norms, rope, pointwise, embedding, loss
const std::vector<Kernel>& router_kernels();  // routing and balance of experts
const std::vector<Kernel>& update_kernels();  // step ops
const std::vector<Kernel>& expert_kernels();  // dispatch, experts, joined heads

// Calls fn with a value of the C++ type of a floating dtype.
template <class F>
auto with_type(graph::DType t, F&& fn) {
  switch (t) {
    case graph::DType::F64:
      return fn(double{});
    case graph::DType::F32:
      return fn(float{});
    case graph::DType::BF16:
      return fn(base::Bf16{});
    default:
      base::fail_internal("no CPU kernel for {}", base::to_string(t));
  }
}

}  // namespace quintet::exec::cpu
