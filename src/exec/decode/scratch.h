// Scratch of the kernels, by family of ops: a function of the instruction alone (and of the threads on a
// CPU). Compiled in every build, so that a plan made without CUDA matches the executor to the byte.
#pragma once

#include "program/program.h"

namespace quintet::exec {

struct Scratch {
  const graph::OpDef* op;
  int64_t (*cpu)(const program::Instr& instr, int threads);  // null: none
  int64_t (*cuda)(const program::Instr& instr);              // null: none
};

// One table per family, in the file with its name.
const std::vector<Scratch>& matmul_scratch();
const std::vector<Scratch>& attention_scratch();
const std::vector<Scratch>& norm_scratch();
const std::vector<Scratch>& elementwise_scratch();
const std::vector<Scratch>& vocab_scratch();
const std::vector<Scratch>& routing_scratch();
const std::vector<Scratch>& expert_scratch();
const std::vector<Scratch>& step_scratch();
const std::vector<Scratch>& matrix_scratch();
const std::vector<Scratch>& generate_scratch();
const std::vector<Scratch>& quantize_scratch();

// The row of an op in these tables; null: it has no scratch.
const Scratch* find_scratch(const graph::OpDef* op);

// For the built-in kernels; 0: none.
int64_t cpu_scratch_bytes(const program::Instr& instr, int threads);
int64_t cuda_scratch_bytes(const program::Instr& instr);

}  // namespace quintet::exec
