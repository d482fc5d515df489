#include "passes/recompute.h"

#include <algorithm>

#include "graph/op.h"

namespace quintet::passes {

using graph::Graph;
using graph::Node;
using graph::Phase;
using graph::ValueId;

namespace {

// The class of an op in the recipe's words; empty: never recomputed by class.
std::string_view class_of(const graph::OpDef& op) {
  if (&op == &graph::kRmsNorm || &op == &graph::kLayerNorm) return "norm";
  if (&op == &graph::kSwiGlu || &op == &graph::kGelu) return "activation";
  if (&op == &graph::kRope) return "rope";
  if (&op == &graph::kBiasAdd) return "bias";
  if (&op == &graph::kDropout) return "dropout";
  if (&op == &graph::kAdd) return "residual";
  if (&op == &graph::kLinear) return "linear";
  if (&op == &graph::kAttention) return "attention";
  return {};
}

bool is_chosen(const Node& n, const config::Memory& policy) {
  if (policy.recompute == config::RecomputeKind::Full) return (n.block - 1) % policy.recompute_every == 0;
  const std::string_view word = class_of(*n.op);
  if (policy.recompute_ops.empty()) return !word.empty() && word != "linear" && word != "attention";
  return std::find(policy.recompute_ops.begin(), policy.recompute_ops.end(), word) !=
         policy.recompute_ops.end();
}

class Recompute {
 public:
  Recompute(const Graph& in, const config::Memory& policy)
      : in_(in), moved_(in.values().size()), again_(in.values().size()), dropped_(in.nodes().size(), 0) {
    std::vector<char> boundary(in.values().size(), 0);
    for (const Node& n : in.nodes())
      for (const ValueId v : n.inputs)
        if (const graph::NodeId p = in.value(v).producer; p.valid() && n.phase == Phase::F)
          boundary[v.index()] |= in.nodes()[p.index()].block != n.block;
    for (size_t i = 0; i < in.nodes().size(); ++i) {
      const Node& n = in.nodes()[i];
      const bool inner = n.block > 0 && n.block + 1 < in.num_blocks;
      bool drop = n.phase == Phase::F && n.row_group < 0 && inner && is_chosen(n, policy);
      for (const ValueId v : n.outputs) drop = drop && !boundary[v.index()];
      dropped_[i] = drop;
    }
  }

  Graph run() {
    for (size_t i = 0; i < in_.values().size(); ++i) {
      const graph::Value& v = in_.values()[i];
      const ValueId id(static_cast<int32_t>(i));
      if (v.kind == graph::ValueKind::Input || v.kind == graph::ValueKind::State) moved_[i] = out_.add_value(v);
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
      out_.step_sums.push_back(std::move(sum));
    }
    for (graph::BiasUpdate update : in_.bias_updates) {
      update.bias = moved_[update.bias.index()];
      update.load = moved_[update.load.index()];
      out_.bias_updates.push_back(update);
    }
    out_.row_chunk = in_.row_chunk;
    out_.num_blocks = in_.num_blocks;
    return std::move(out_);
  }

 private:
  // The value as the backward pass reads it: kept, or computed again just before its first use.
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
  std::vector<ValueId> moved_, again_;  // by value of in_: its copy, and its copy computed again
  std::vector<char> dropped_;           // by node
};

}  // namespace

Graph recompute(const Graph& graph, const config::Memory& policy) {
  if (policy.recompute == config::RecomputeKind::None) return graph;
  return Recompute(graph, policy).run();
}

}  // namespace quintet::passes
