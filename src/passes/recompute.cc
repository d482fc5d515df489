#include "passes/recompute.h"

#include <algorithm>

#include "base/error.h"
#include "base/glob.h"
#include "config/layer_ranges.h"
#include "graph/fp8_ops.h"

namespace quintet::passes {

using graph::Graph;
using graph::Node;
using graph::Phase;
using graph::ValueId;

namespace {

// 0-based place of a block among those of its stage. Label 0 is the embedding, which shares the first stage.
int place_in_stage(int block, const std::vector<int>& stage_of_block) {
  int first = block;
  while (first > 1 && (stage_of_block.empty() || stage_of_block[static_cast<size_t>(first) - 1] ==
                                                     stage_of_block[static_cast<size_t>(block)]))
    --first;
  return block - first;
}

bool is_cheap(const Node& n) {
  const graph::OpClass c = n.op->op_class;
  return !word_of(*n.op).empty() && c != graph::OpClass::Matmul && c != graph::OpClass::ExpertMatmul &&
         c != graph::OpClass::Attention;
}

// Whether one of the words of memory.recompute_layers selects an op: all, its class, or a pattern that a
// weight matches which it reads.
bool is_named(const Graph& graph, const Node& n, const std::vector<std::string>& words) {
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
    if (word == "all" || word == word_of(*n.op)) return true;
    return std::any_of(n.inputs.begin(), n.inputs.end(), [&](ValueId v) {
      if (const graph::NodeId p = graph.value(v).producer; p.valid())  // codes of a weight
        if (const Node& q = graph.nodes()[p.index()]; graph::makes_codes(*q.op)) v = q.inputs[0];
      const graph::Value& value = graph.value(v);
      return value.kind == graph::ValueKind::Param && base::glob_match(word, value.name);
    });
  });
}

bool is_chosen_by_layer(const Graph& graph, const Node& n, const config::Memory& policy) {
  for (const config::RecomputeLayers& entry : policy.recompute_layers)
    if (std::binary_search(entry.layers.begin(), entry.layers.end(), int64_t{n.block} - 1))
      return entry.ops.empty() ? is_cheap(n) : is_named(graph, n, entry.ops);
  return false;
}

bool is_chosen(const Graph& graph, const Node& n, const config::Memory& policy,
               const std::vector<int>& stage_of_block) {
  if (policy.recompute == config::RecomputeKind::Full)
    return (n.block - 1) % policy.recompute_every == 0 &&
           (policy.recompute_first == 0 || place_in_stage(n.block, stage_of_block) < policy.recompute_first);
  if (!policy.recompute_layers.empty()) return is_chosen_by_layer(graph, n, policy);
  const std::string_view word = word_of(*n.op);
  if (policy.recompute_ops.empty()) return is_cheap(n);
  return std::find(policy.recompute_ops.begin(), policy.recompute_ops.end(), word) !=
         policy.recompute_ops.end();
}

// Codes of a value that is recomputed are made again from it instead of being kept. Nodes before this one
// have their final marks.
bool quantizes_chosen(const Graph& graph, const Node& n, const Marks& marks) {
  if (!graph::makes_codes(*n.op)) return false;
  const graph::NodeId producer = graph.value(n.inputs[0]).producer;
  return producer.valid() && marks[producer.index()];
}

// Patterns of memory.recompute_layers that select nothing in any of their blocks.
void require_matches(const Graph& graph, const config::Memory& policy, const Marks& marks) {
  for (const config::RecomputeLayers& entry : policy.recompute_layers)
    for (const std::string& word : entry.ops) {
      if (word.find_first_of(".*?") == std::string::npos) continue;  // a word
      const auto& nodes = graph.nodes();
      const bool found = std::any_of(nodes.begin(), nodes.end(), [&](const Node& n) {
        const auto i = static_cast<size_t>(&n - nodes.data());
        return marks[i] &&
               std::binary_search(entry.layers.begin(), entry.layers.end(), int64_t{n.block} - 1) &&
               is_named(graph, n, {word});
      });
      if (!found)
        base::fail_user(
            "memory.recompute_layers: \"{}\" matches no weight of an op that can be recomputed in "
            "block{} {}; weights are named like \"blocks.0.ffn.up.weight\"",
            word, entry.layers.size() == 1 ? "" : "s", config::layer_ranges_text(entry.layers));
    }
}

class Recompute {
 public:
  Recompute(const Graph& in, const Marks& marks, const Chunks& chunks)
      : in_(in), moved_(in.values().size()), again_(in.values().size()), dropped_(recomputable(in, chunks)) {
    for (size_t i = 0; i < dropped_.size(); ++i) dropped_[i] = dropped_[i] && marks[i];
  }

  Graph run() {
    for (size_t i = 0; i < in_.values().size(); ++i) {
      const graph::Value& v = in_.values()[i];
      const ValueId id(static_cast<int32_t>(i));
      if (v.kind == graph::ValueKind::Input || v.kind == graph::ValueKind::State)
        moved_[i] = out_.add_value(v);
      if (v.kind == graph::ValueKind::Param) {
        graph::Param info = *in_.find_param(id);
        info.grads.clear();
        moved_[i] = out_.add_param(v.name, v.type, info);
      }
    }
    for (const Node& n : in_.nodes()) {
      std::vector<ValueId> inputs;
      for (const ValueId v : n.inputs)
        inputs.push_back(n.phase == Phase::F ? moved_[v.index()] : backward_use(v));
      copy(n, std::move(inputs), n.phase, moved_);
    }
    for (const graph::Param& p : in_.params())
      for (const ValueId g : p.grads)
        out_.find_param(moved_[p.value.index()])->grads.push_back(moved_[g.index()]);
    if (in_.loss.valid()) out_.loss = moved_[in_.loss.index()];
    if (in_.logits.valid()) out_.logits = moved_[in_.logits.index()];
    for (graph::StepSum sum : in_.step_sums) {
      sum.value = moved_[sum.value.index()];
      out_.step_sums.push_back(sum);
    }
    for (graph::BiasUpdate update : in_.bias_updates) {
      update.bias = moved_[update.bias.index()];
      update.load = moved_[update.load.index()];
      out_.bias_updates.push_back(update);
    }
    out_.scales = in_.scales;
    out_.row_chunk = in_.row_chunk;
    out_.num_blocks = in_.num_blocks;
    return std::move(out_);
  }

 private:
  // The value as the backward pass reads it: kept, or recomputed just before its first use.
  ValueId backward_use(ValueId v) {
    const graph::NodeId producer = in_.value(v).producer;
    if (!producer.valid() || !dropped_[producer.index()]) return moved_[v.index()];
    if (again_[v.index()].valid()) return again_[v.index()];
    const Node& n = in_.nodes()[producer.index()];
    std::vector<ValueId> inputs;
    for (const ValueId in : n.inputs) inputs.push_back(backward_use(in));
    copy(n, std::move(inputs), Phase::B, again_);
    return again_[v.index()];
  }

  void copy(const Node& n, std::vector<ValueId> inputs, Phase phase, std::vector<ValueId>& results) {
    Node& node = out_.add_node(*n.op, std::move(inputs), n.attrs, phase, n.block);
    node.row_group = n.row_group;
    for (size_t i = 0; i < n.outputs.size(); ++i) results[n.outputs[i].index()] = node.outputs[i];
  }

  const Graph& in_;
  Graph out_;
  std::vector<ValueId> moved_, again_;  // by value of in_: its copy, and its recomputed copy
  Marks dropped_;
};

}  // namespace

std::string_view word_of(const graph::OpDef& op) {
  using graph::OpClass;
  if (op.pass != graph::OpPass::Forward) return {};
  switch (op.op_class) {
    case OpClass::Norm:
    case OpClass::Activation:
    case OpClass::Rope:
    case OpClass::Bias:
    case OpClass::Dropout:
    case OpClass::Residual:
    case OpClass::Attention:
      return to_string(op.op_class);
    case OpClass::Matmul:
    case OpClass::ExpertMatmul:
      return "linear";
    default:
      return {};
  }
}

Chunks chunks_of(const Graph& graph, const config::Memory& policy, const std::vector<int>& stage_of_block) {
  if (policy.recompute != config::RecomputeKind::Full || policy.recompute_chunk == 1) return {};
  Chunks chunks(static_cast<size_t>(graph.num_blocks));
  int last = 0;
  for (int block = 1; block < graph.num_blocks; ++block) {
    // The last label is the head's.
    const bool begins =
        block + 1 == graph.num_blocks || place_in_stage(block, stage_of_block) % policy.recompute_chunk == 0;
    chunks[static_cast<size_t>(block)] = last += begins;
  }
  return chunks;
}

Marks recomputable(const Graph& graph, const Chunks& chunks) {
  const auto together = [&](int a, int b) {
    return a == b || (!chunks.empty() && chunks[static_cast<size_t>(a)] == chunks[static_cast<size_t>(b)]);
  };
  std::vector<char> boundary(graph.values().size(), 0);
  for (const Node& n : graph.nodes())
    for (const ValueId v : n.inputs)
      if (const graph::NodeId p = graph.value(v).producer; p.valid() && n.phase == Phase::F)
        boundary[v.index()] |= !together(graph.nodes()[p.index()].block, n.block);
  Marks may(graph.nodes().size(), 0);
  for (size_t i = 0; i < may.size(); ++i) {
    const Node& n = graph.nodes()[i];
    const bool inner = n.block > 0 && n.block + 1 < graph.num_blocks;
    may[i] = n.phase == Phase::F && n.row_group < 0 && inner && !n.op->keep &&
             std::none_of(n.outputs.begin(), n.outputs.end(),
                          [&](ValueId v) { return static_cast<bool>(boundary[v.index()]); });
  }
  return may;
}

Marks chosen(const Graph& graph, const config::Memory& policy, const std::vector<int>& stage_of_block) {
  QUINTET_CHECK(policy.recompute != config::RecomputeKind::Fit, "fit is decided by the compiler");
  Marks marks = recomputable(graph, chunks_of(graph, policy, stage_of_block));
  for (size_t i = 0; i < marks.size(); ++i)
    marks[i] = marks[i] && policy.recompute != config::RecomputeKind::None &&
               (is_chosen(graph, graph.nodes()[i], policy, stage_of_block) ||
                quantizes_chosen(graph, graph.nodes()[i], marks));
  if (policy.recompute == config::RecomputeKind::Selective) require_matches(graph, policy, marks);
  return marks;
}

Graph recompute(const Graph& graph, const Marks& marks, const Chunks& chunks) {
  if (std::none_of(marks.begin(), marks.end(), [](char m) { return m != 0; })) return graph;
  QUINTET_CHECK(marks.size() == graph.nodes().size(), "{} marks for {} nodes", marks.size(),
                graph.nodes().size());
  return Recompute(graph, marks, chunks).run();
}

}  // namespace quintet::passes
