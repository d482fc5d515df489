// Shared by the tests of room graph: a catalogue with one good use of every op, and small graphs.
#pragma once

#include <string>
#include <vector>

#include "graph/builder.h"
#include "graph/op.h"

namespace quintet::graph::testing {

struct OpCase {
  const OpDef* op;
  std::vector<Type> in;
  Attrs attrs;

  std::vector<Type> out() const { return op->infer(in, attrs); }
};

// One good use of every op that has a sharding rule. Sizes differ from dim to dim, so that mix-ups are found:
// tokens 8, embed 16, heads 4, kv_heads 2, head_dim 6, ffn 24, vocab 37.
const std::vector<OpCase>& op_cases();
const OpCase& op_case(const OpDef& op);  // the first of that op
// Those of dispatch, experts and concatenated heads, which op_cases() includes (expert_cases.cc).
std::vector<OpCase> expert_cases();
// Those of routers and load balancing, which it includes too (router_cases.cc).
std::vector<OpCase> router_cases();

// f32[...] from the names of the dims; their sizes are those above.
Type f32(const std::vector<Dim>& dims);
Type i32(const std::vector<Dim>& dims);
Type f64_scalar();
Type i64_scalar();

BuildOptions train_options();  // tokens 8, seq_len 4

// A Llama of one block with tokens 8, written with the builder alone.
struct TinyOptions {
  Mode mode = Mode::Train;
  bool tied = false;
  std::vector<std::string> freeze;
};
Graph tiny_llama(const TinyOptions& options = {});

const Param& param(const Graph& graph, std::string_view name);

}  // namespace quintet::graph::testing
