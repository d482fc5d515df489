#include "passes/rewrite.h"

#include <algorithm>

#include "base/error.h"
#include "graph/op.h"

namespace quintet::passes {

using graph::Node;
using graph::NodeId;
using graph::ValueId;

bool is_message(const Node& node) { return node.op->dims == nullptr; }

Rewrite::Rewrite(layout::LocalGraph local)
    : local_(std::move(local)),
      readers_(local_.graph.values().size()),
      gone_(local_.graph.nodes().size(), 0) {
  for (size_t i = 0; i < local_.graph.nodes().size(); ++i)
    for (const ValueId in : node(i).inputs) readers_[in.index()].push_back(i);
}

ValueId Rewrite::add_value(graph::Type type) {
  readers_.emplace_back();
  local_.placements.emplace_back();
  local_.origin.emplace_back();
  return local_.graph.add_value({.name = "", .type = std::move(type)});
}

layout::LocalGraph Rewrite::finish() {
  if (std::find(gone_.begin(), gone_.end(), 1) == gone_.end()) return std::move(local_);
  graph::Graph& graph = local_.graph;
  std::vector<Node> old = std::move(graph.nodes()), order;
  std::vector<std::vector<layout::Division>> divisions;
  for (size_t v = 0; v < graph.values().size(); ++v)
    graph.value(ValueId(static_cast<int32_t>(v))).producer = {};
  const auto is_made = [&](ValueId v) {
    return graph.value(v).kind != graph::ValueKind::Result || graph.value(v).producer.valid();
  };
  std::vector<size_t> waiting;
  const auto place = [&](size_t i) {
    if (!std::all_of(old[i].inputs.begin(), old[i].inputs.end(), is_made)) return false;
    for (const ValueId out : old[i].outputs)
      graph.value(out).producer = NodeId(static_cast<int32_t>(order.size()));
    order.push_back(std::move(old[i]));
    divisions.push_back(std::move(local_.divisions[i]));
    return true;
  };
  for (size_t i = 0; i < old.size(); ++i) {
    if (gone_[i]) continue;
    if (!place(i)) {
      waiting.push_back(i);
      continue;
    }
    std::erase_if(waiting, place);
  }
  QUINTET_CHECK(waiting.empty(), "{} nodes depend on values that no node produces", waiting.size());
  graph.nodes() = std::move(order);
  local_.divisions = std::move(divisions);
  return std::move(local_);
}

void reorder(layout::LocalGraph& local, const std::vector<size_t>& order) {
  graph::Graph& g = local.graph;
  QUINTET_CHECK(order.size() == g.nodes().size(), "an order of {} nodes has {}", g.nodes().size(),
                order.size());
  const auto permute = [&](auto& list) {
    if (list.empty()) return;
    std::remove_reference_t<decltype(list)> now;
    now.reserve(list.size());
    for (const size_t i : order) now.push_back(std::move(list[i]));
    list = std::move(now);
  };
  permute(g.nodes());
  permute(local.divisions);
  permute(local.once);
  for (size_t i = 0; i < order.size(); ++i)
    for (const ValueId out : g.nodes()[i].outputs) g.value(out).producer = NodeId(static_cast<int32_t>(i));
}

}  // namespace quintet::passes
