#include "passes/overflow.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/error.h"
#include "graph/op.h"
#include "passes/rewrite.h"

namespace quintet::passes {

using graph::Dim;
using graph::Node;
using graph::NodeId;
using graph::Phase;
using graph::ValueId;

namespace {

bool has_rows(const graph::Type& t) {
  return !t.dims.empty() && (t.dims[0].name == Dim::Routed || t.dims[0].name == Dim::Slots);
}

class Overflow {
 public:
  Overflow(layout::LocalGraph local, bool splits_backward)
      : local_(std::move(local)), splits_backward_(splits_backward), count_(graph().nodes().size()) {
    local_.placements.resize(graph().values().size());
    local_.origin.resize(graph().values().size());
  }

  layout::LocalGraph run() {
    std::map<int, size_t> splits;  // block -> its split_rows
    for (size_t i = 0; i < count_; ++i)
      if (node(i).op == &graph::kSplitRows)
        QUINTET_CHECK(splits.emplace(node(i).block, i).second, "block {} sends rows to experts twice",
                      node(i).block);
    if (splits.empty()) return std::move(local_);
    readers_.resize(graph().values().size());
    for (size_t i = 0; i < count_; ++i)
      for (const ValueId in : node(i).inputs) readers_[in.index()].push_back(i);
    find_recomputed();
    for (const auto& [block, split] : splits) add_loops(block, split);
    for (const auto& [from, to] : replaced_) {
      for (size_t i = 0; i < count_; ++i)
        std::replace(node(i).inputs.begin(), node(i).inputs.end(), from, to);
      for (Loop& loop : loops_)
        for (Node& n : loop.nodes)
          if (n.outputs[0] != to) std::replace(n.inputs.begin(), n.inputs.end(), from, to);
    }
    order();
    return std::move(local_);
  }

 private:
  // The nodes of one repetition, first next_pass; placed after node `after`.
  struct Loop {
    std::vector<Node> nodes;
    std::vector<std::vector<layout::Division>> divisions;
    size_t after = 0;
  };

  graph::Graph& graph() { return local_.graph; }
  Node& node(size_t i) { return graph().nodes()[i]; }

  // Whether a node processes routed rows: before, inside or after the experts.
  bool is_section(const Node& n) {
    if (n.op == &graph::kRoute || n.op == &graph::kSplitRows) return false;
    const auto rows = [&](ValueId v) { return has_rows(graph().type(v)); };
    return std::any_of(n.inputs.begin(), n.inputs.end(), rows) ||
           std::any_of(n.outputs.begin(), n.outputs.end(), rows);
  }
  bool is_exit(const Node& n) {
    return std::none_of(n.outputs.begin(), n.outputs.end(),
                        [&](ValueId v) { return has_rows(graph().type(v)); });
  }

  // Values that the backward pass recomputes: nodes with the same op, attributes and operands.
  void find_recomputed() {
    std::map<std::tuple<const graph::OpDef*, std::string, std::vector<int>>, int> known;
    std::vector<int> same(graph().values().size());
    for (size_t v = 0; v < same.size(); ++v) same[v] = static_cast<int>(v);
    for (size_t i = 0; i < count_; ++i) {
      const Node& n = node(i);
      if (n.phase == Phase::W || n.outputs.empty()) continue;
      std::vector<int> inputs;
      for (const ValueId in : n.inputs) inputs.push_back(same[in.index()]);
      const auto [it, is_new] = known.try_emplace({n.op, graph::to_string(n.attrs), std::move(inputs)},
                                                  static_cast<int>(n.outputs[0].index()));
      if (is_new) continue;
      const ValueId first(it->second);
      const Node& original = node(graph().value(first).producer.index());
      for (size_t o = 0; o < n.outputs.size(); ++o) {
        same[n.outputs[o].index()] = static_cast<int>(original.outputs[o].index());
        if (original.phase == Phase::F && n.phase == Phase::B)
          recomputed_.try_emplace(original.outputs[o], n.outputs[o]);
      }
    }
  }

  // Nodes of the section that `exits` depend on, themselves included, in order.
  std::vector<size_t> closure(const std::vector<size_t>& exits) {
    std::set<size_t> found(exits.begin(), exits.end());
    std::vector<size_t> open = exits;
    while (!open.empty()) {
      const size_t i = open.back();
      open.pop_back();
      for (const ValueId in : node(i).inputs) {
        const NodeId producer = graph().value(in).producer;
        if (producer.valid() && is_section(node(producer.index())) && found.insert(producer.index()).second)
          open.push_back(producer.index());
      }
    }
    return {found.begin(), found.end()};
  }

  void add_loops(int block, size_t split) {
    // Results of the forward pass, of its repetition in the backward pass, and gradients.
    std::vector<size_t> forward, again, gradients;
    for (size_t i = 0; i < count_; ++i) {
      Node& n = node(i);
      if (n.block != block || !is_section(n)) continue;
      if (splits_backward_ && n.phase == Phase::W) n.phase = Phase::B;
      if (!is_exit(n)) continue;
      if (n.phase == Phase::F) {
        forward.push_back(i);
        continue;
      }
      const std::vector<size_t> all = closure({i});
      const bool repeats = std::all_of(all.begin(), all.end(),
                                       [&](size_t k) { return node(k).op->pass == graph::OpPass::Forward; });
      (repeats ? again : gradients).push_back(i);
    }
    // Folding may have made a recomputed value, which gradients of weights read, a result of the node that
    // computes the input's gradient from the results here: they need a loop of their own after it.
    std::vector<size_t> first, after;
    late_ = dependents(gradients);
    for (const size_t i : gradients) (late_.contains(i) ? after : first).push_back(i);
    for (const auto* exits : {&forward, &again, &first})
      if (!exits->empty()) add_loop(*exits, split);
    late_.clear();
    if (!after.empty()) add_loop(after, split);
  }

  // Nodes that depend on rows of tokens that `exits` compute.
  std::set<size_t> dependents(const std::vector<size_t>& exits) {
    std::set<size_t> found;
    std::vector<size_t> open;
    for (const size_t i : exits)
      if (node(i).op == &graph::kUnpack || node(i).op == &graph::kUnpackWeights) open.push_back(i);
    while (!open.empty()) {
      const size_t i = open.back();
      open.pop_back();
      for (const ValueId out : node(i).outputs)
        for (const size_t reader : readers_[out.index()])
          if (node(reader).block == node(i).block && found.insert(reader).second) open.push_back(reader);
    }
    return found;
  }

  ValueId new_value_like(ValueId like) {
    const ValueId v = graph().add_value({.name = "", .type = graph().type(like)});
    local_.placements.push_back(local_.placements[like.index()]);
    local_.origin.push_back(local_.origin[like.index()]);
    return v;
  }

  void add_loop(const std::vector<size_t>& exits, size_t split) {
    const int id = static_cast<int>(loops_.size());
    const Phase phase = node(exits[0]).phase == Phase::F ? Phase::F : Phase::B;
    Loop loop{.nodes = {}, .divisions = {}, .after = exits.back()};
    std::map<ValueId, ValueId> now;  // values of this pass
    const auto add = [&](const Node& like, std::vector<ValueId> inputs, size_t divisions) -> Node& {
      Node& n = loop.nodes.emplace_back(Node{.op = like.op,
                                             .attrs = like.attrs,
                                             .inputs = std::move(inputs),
                                             .outputs = {},
                                             .phase = phase,
                                             .block = like.block,
                                             .repeat = id});
      loop.divisions.push_back(local_.divisions[divisions]);
      for (const ValueId out : like.outputs) {
        const ValueId v = new_value_like(out);
        n.outputs.push_back(v);
        now[out] = v;
      }
      return n;
    };

    const Node first = node(split);
    const ValueId passes = first.outputs[3];
    add({.op = &graph::kNextPass, .outputs = {passes}, .block = first.block}, {passes}, split);
    loop.divisions.back().clear();
    const ValueId pass = loop.nodes.back().outputs[0];
    now.clear();
    add(first, {first.inputs[0], first.inputs[1], pass}, split);
    for (const size_t i : closure(exits)) {
      const Node n = node(i);
      QUINTET_CHECK(!is_message(n) || n.op == &graph::kAllToAllV, "[{}] of block {} is between experts",
                    n.op->name, n.block);
      std::vector<ValueId> inputs;
      for (const ValueId in : n.inputs) inputs.push_back(value_now(in, now, phase));
      const bool exits_here = std::binary_search(exits.begin(), exits.end(), i);
      if (!exits_here) {
        add(n, std::move(inputs), i);
        continue;
      }
      const ValueId result = n.outputs[0];
      if (n.op == &graph::kUnpack || n.op == &graph::kUnpackWeights) {
        const auto [target, at] = total_of(result, exits[0], phase);
        QUINTET_CHECK(std::none_of(replaced_.begin(), replaced_.end(),
                                   [&, t = target](const auto& r) { return r.first == t; }),
                      "further passes of block {} add to %{} twice", n.block, target.value);
        loop.after = std::max(loop.after, at);
        inputs.push_back(target);
        replaced_.emplace_back(target, add(n, std::move(inputs), i).outputs[0]);
      } else {
        const ValueId more = add(n, std::move(inputs), i).outputs[0];
        add_gradient(result, more);
      }
    }
    loops_.push_back(std::move(loop));
  }

  ValueId value_now(ValueId v, const std::map<ValueId, ValueId>& now, Phase phase) const {
    if (const auto it = now.find(v); it != now.end()) return it->second;
    if (phase == Phase::F) return v;
    // Kept only for this pass it would undo the recomputation.
    const auto again = recomputed_.find(v);
    if (again == recomputed_.end()) return v;
    return late_.contains(local_.graph.value(again->second).producer.index()) ? v : again->second;
  }

  // What further passes add to, and the node that computes it: the result of the first pass, or the sum that
  // it is added to at once. A later sum might depend on other results of the loop.
  std::pair<ValueId, size_t> total_of(ValueId result, size_t first_exit, Phase phase) {
    size_t at = graph().value(result).producer.index();
    for (;;) {
      const std::vector<size_t>& readers = readers_[result.index()];
      if (readers.size() != 1) return {result, at};
      const Node& n = node(readers[0]);
      if (n.op != &graph::kAdd || n.phase != phase || n.block != node(at).block || n.row_group >= 0)
        return {result, at};
      const NodeId other = graph().value(n.inputs[n.inputs[0] == result ? 1 : 0]).producer;
      if (other.valid() && other.index() >= first_exit) return {result, at};
      at = readers[0];
      result = n.outputs[0];
    }
  }

  void add_gradient(ValueId first, ValueId more) {
    for (graph::Param& p : graph().params()) {
      const auto at = std::find(p.grads.begin(), p.grads.end(), first);
      if (at == p.grads.end()) continue;
      p.grads.insert(at + 1, more);
      return;
    }
    base::fail_internal("%{}, computed from rows of experts, is neither a token's nor a weight's",
                        first.value);
  }

  // Loops after the nodes that compute what they add to, and nodes after the values that they read.
  void order() {
    std::vector<Node> old = std::move(graph().nodes()), nodes;
    std::vector<std::vector<layout::Division>> old_divisions = std::move(local_.divisions), divisions;
    for (size_t v = 0; v < graph().values().size(); ++v)
      graph().value(ValueId(static_cast<int32_t>(v))).producer = {};
    const auto is_made = [&](ValueId v) {
      return graph().value(v).kind != graph::ValueKind::Result || graph().value(v).producer.valid();
    };
    const auto place = [&](Node& n, std::vector<layout::Division>& d) {
      for (const ValueId out : n.outputs)
        graph().value(out).producer = NodeId(static_cast<int32_t>(nodes.size()));
      nodes.push_back(std::move(n));
      divisions.push_back(std::move(d));
    };
    // Units: nodes, then loops.
    const auto try_place = [&](size_t unit) {
      if (unit < old.size()) {
        if (!std::all_of(old[unit].inputs.begin(), old[unit].inputs.end(), is_made)) return false;
        place(old[unit], old_divisions[unit]);
        return true;
      }
      Loop& loop = loops_[unit - old.size()];
      std::set<ValueId> own;
      for (const Node& n : loop.nodes) {
        for (const ValueId in : n.inputs)
          if (!own.contains(in) && !is_made(in)) return false;
        own.insert(n.outputs.begin(), n.outputs.end());
      }
      for (size_t i = 0; i < loop.nodes.size(); ++i) place(loop.nodes[i], loop.divisions[i]);
      return true;
    };
    std::vector<size_t> waiting;
    const auto visit = [&](size_t unit) {
      if (!try_place(unit)) return waiting.push_back(unit);
      for (bool moved = true; moved;) {
        const size_t before = waiting.size();
        std::erase_if(waiting, try_place);
        moved = waiting.size() != before;
      }
    };
    for (size_t i = 0; i < old.size(); ++i) {
      visit(i);
      for (size_t l = 0; l < loops_.size(); ++l)
        if (loops_[l].after == i) visit(old.size() + l);
    }
    QUINTET_CHECK(waiting.empty(), "{} nodes depend on values that no node produces", waiting.size());
    graph().nodes() = std::move(nodes);
    local_.divisions = std::move(divisions);
    local_.once.assign(graph().nodes().size(), {});
  }

  layout::LocalGraph local_;
  const bool splits_backward_;
  const size_t count_;                        // nodes before
  std::vector<std::vector<size_t>> readers_;  // by value
  std::map<ValueId, ValueId> recomputed_;     // of the forward pass -> its copy in the backward pass
  std::set<size_t> late_;                     // nodes that depend on the loop being made
  std::vector<Loop> loops_;
  std::vector<std::pair<ValueId, ValueId>> replaced_;
};

}  // namespace

layout::LocalGraph add_overflow_passes(layout::LocalGraph local, bool splits_backward) {
  return Overflow(std::move(local), splits_backward).run();
}

}  // namespace quintet::passes
