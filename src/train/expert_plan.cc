#include "train/expert_plan.h"

namespace quintet::train {

std::optional<ExpertPlan> expert_plan(const compiler::Compiled& compiled) {
  const graph::Graph& local = compiled.local.graph;
  const layout::Layout& layout = compiled.layout;
  ExpertPlan plan;
  int64_t tokens = 0;  // on this rank
  for (const graph::Node& node : local.nodes()) {
    if (node.phase != graph::Phase::F) continue;
    const auto size = [&](size_t operand, size_t dim) { return local.type(node.inputs[operand]).size(dim); };
    if (node.op == &graph::kRoute) {
      ++plan.blocks;
      plan.experts = node.attrs.integer("experts");
      plan.padded = node.attrs.integer("pad");
      tokens = size(0, 0);
      plan.choices = size(0, 1);
    }
    if (node.op == &graph::kSplitRows) plan.passes = true;
    if (node.op == &graph::kGroupedLinear) {
      plan.room = size(0, 0);
      plan.per_rank = size(1, 0);
    }
    if (node.op == &graph::kLimit) {
      plan.capacity = node.attrs.integer("capacity");
      plan.group_sequences = node.attrs.integer("group");
    }
  }
  if (plan.blocks == 0) return std::nullopt;
  plan.senders = layout.mesh.size(layout.experts.group());
  plan.mean = plan.senders * tokens * plan.choices / layout.mesh.size(layout.experts.ep);
  return plan;
}

}  // namespace quintet::train
