// Runs single ops on host memory through the CPU kernels: what an instruction does, without a
// program.
#pragma once

#include <cstring>
#include <random>
#include <vector>

#include "exec/cpu/kernel.h"
#include "graph/cache_ops.h"
#include "graph/op.h"

namespace quintet::tests {

// f64 values of any float tensor, or the integers of an index tensor.
struct HostTensor {
  graph::Type type;
  std::vector<std::byte> bytes;

  HostTensor() = default;
  explicit HostTensor(graph::Type t) : type(std::move(t)), bytes(static_cast<size_t>(type.bytes())) {}
  double* real() { return reinterpret_cast<double*>(bytes.data()); }
  const double* real() const { return reinterpret_cast<const double*>(bytes.data()); }
  int32_t* index() { return reinterpret_cast<int32_t*>(bytes.data()); }
  bool is_real() const { return type.dtype == graph::DType::F64; }
};

// The two sums of a row are a pair in the type f64[tokens, 2], but the kernels store them as two arrays one
// after the other (exec/decode/vocab.h): this transposes them.
inline HostTensor exchange_pairs(const HostTensor& t, bool to_kernel) {
  HostTensor out(t.type);
  const int64_t rows = t.type.size(0);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t k = 0; k < 2; ++k) {
      const int64_t pair = r * 2 + k, array = k * rows + r;
      out.real()[to_kernel ? array : pair] = t.real()[to_kernel ? pair : array];
    }
  return out;
}

// Executes one op. `parts` says which part of each sharded dim the operands hold; every dim of the op's rule
// must be in it. An op that works in place (loss_grad) gets a copy of its input.
inline std::vector<HostTensor> run_op(const graph::OpDef& op, const graph::Attrs& attrs,
                                      const std::vector<HostTensor>& in,
                                      const std::vector<graph::Type>& out_types,
                                      const std::vector<program::Part>& parts) {
  device::ThreadPool pool(1);
  program::Instr instr{.op = &op, .attrs = attrs, .parts = parts};
  for (const HostTensor& t : in) instr.in.push_back({program::BufferId(0), 0, t.type});
  for (const graph::Type& t : out_types) instr.out.push_back({program::BufferId(0), 0, t});
  instr.workspace_bytes = exec::cpu::workspace_bytes(instr, 1);
  std::vector<double> workspace(static_cast<size_t>(instr.workspace_bytes / 8 + 64));
  std::vector<HostTensor> inputs = in, outputs;
  for (const graph::Type& t : out_types) outputs.emplace_back(t);
  if (&op == &graph::kLossGrad) inputs[2] = exchange_pairs(in[2], true);
  if (&op == &graph::kLogProb) inputs[1] = exchange_pairs(in[1], true);
  exec::cpu::Bound bound;
  bound.instr = &instr;
  bound.pool = &pool;
  // Kernels may require aligned scratch.
  const auto address = reinterpret_cast<uintptr_t>(workspace.data());
  bound.workspace = reinterpret_cast<std::byte*>((address + 63) / 64 * 64);
  for (HostTensor& t : inputs) bound.in.push_back(t.bytes.data());
  for (HostTensor& t : outputs) bound.out.push_back(t.bytes.data());
  const bool in_place = &op == &graph::kLossGrad || &op == &graph::kCrossEntropy;
  if (in_place) bound.out[1] = bound.in[0];
  const bool stores = &op == &graph::kCacheAppend || &op == &graph::kCachedAttention;
  const auto stored = [&](auto&& fn) {
    for (const auto& [o, i] : op.in_place)
      if (stores && static_cast<size_t>(o) < outputs.size())
        fn(static_cast<size_t>(o), static_cast<size_t>(i));
  };
  stored([&](size_t o, size_t i) { bound.out[o] = bound.in[i]; });
  exec::cpu::find_kernel(op).run(bound, false);
  stored([&](size_t o, size_t i) { outputs[o].bytes = inputs[i].bytes; });
  if (in_place) outputs[1].bytes = inputs[0].bytes;
  if (&op == &graph::kRowSumExp) outputs[0] = exchange_pairs(outputs[0], false);
  return outputs;
}

// The parts of an unsharded op.
inline std::vector<program::Part> whole_parts(const graph::OpDef& op, const std::vector<graph::Type>& in,
                                              const std::vector<graph::Type>& out,
                                              const graph::Attrs& attrs) {
  std::vector<program::Part> parts;
  for (const graph::OpDim& d : op.dims(in, out, attrs)) {
    int64_t size = 1;
    for (size_t i = out.size(); i-- > 0;)
      if (d.out[i] >= 0) size = out[i].size(d.out[i]);
    for (size_t i = in.size(); i-- > 0;)
      if (d.in[i] >= 0) size = in[i].size(d.in[i]);
    parts.push_back({d.key, 0, size, size, size});
  }
  return parts;
}

// An op with example operands.
struct OpExample {
  const graph::OpDef* op;
  graph::Attrs attrs;
  std::vector<HostTensor> in;
  std::vector<size_t> outputs = {0};   // those that the gradient test differentiates
  std::vector<size_t> constants = {};  // float operands without a gradient
};

// Every op that has a sharding rule, in f64, on 12 token rows (four sequences of three, two of which have two
// documents).
std::vector<OpExample> op_examples();
// Those of dispatch, experts and concatenated heads, which op_examples() includes: 2 choices of 4 experts.
std::vector<OpExample> expert_examples();
// Those of routers and load balancing, which it includes too: 2 choices of 8 experts.
std::vector<OpExample> router_examples();
// Ops whose rows have a different order on every rank: sharding them is not slicing their operands. Tested in
// expert_sharding_test.cc.
bool is_dispatch(const graph::OpDef& op);

}  // namespace quintet::tests
