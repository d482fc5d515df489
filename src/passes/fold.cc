#include "passes/fold.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/error.h"
#include "graph/op.h"

namespace quintet::passes {

using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Phase;
using graph::ValueId;

namespace {

bool is_message(const Node& node) { return node.op->dims == nullptr; }

class Fold {
 public:
  explicit Fold(layout::LocalGraph local) : local_(std::move(local)), graph_(local_.graph) {
    const std::vector<Node>& nodes = graph_.nodes();
    readers_.resize(graph_.values().size());
    gone_.assign(nodes.size(), 0);
    for (size_t i = 0; i < nodes.size(); ++i) {
      for (const ValueId in : nodes[i].inputs) readers_[in.index()].push_back(i);
      by_op_[{nodes[i].op, nodes[i].block}].push_back(i);
    }
  }

  layout::LocalGraph run(const FoldOptions& options) {
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      if (graph_.nodes()[i].op == &graph::kLossGrad) fold_loss(i);
      if (!options.backward) continue;
      if (graph_.nodes()[i].op == &graph::kSwiGluDx) fold_swiglu(i);
      if (graph_.nodes()[i].op == &graph::kRmsNormDx) fold_norm(i);
    }
    if (std::find(gone_.begin(), gone_.end(), 1) == gone_.end()) return std::move(local_);
    reorder();
    return std::move(local_);
  }

 private:
  const Node& node(size_t i) const { return graph_.nodes()[i]; }

  // The one node of a block with this op, in the forward pass or not, whose operands begin with `inputs`.
  std::optional<size_t> find(const graph::OpDef& op, int block, bool forward,
                             const std::vector<ValueId>& inputs) const {
    const auto at = by_op_.find({&op, block});
    if (at == by_op_.end()) return std::nullopt;
    for (const size_t i : at->second)
      if (!gone_[i] && (node(i).phase == Phase::F) == forward && node(i).inputs == inputs) return i;
    return std::nullopt;
  }

  // Whether a node needs a value that another one makes, over any number of nodes between them.
  bool leads(ValueId value, size_t maker, size_t to) const {
    std::vector<ValueId> found = {value};
    const auto needs = [&](size_t i) {
      return std::any_of(node(i).inputs.begin(), node(i).inputs.end(), [&](ValueId in) {
        return std::find(found.begin(), found.end(), in) != found.end();
      });
    };
    for (size_t i = maker + 1; i < to; ++i)
      if (needs(i)) found.insert(found.end(), node(i).outputs.begin(), node(i).outputs.end());
    return needs(to);
  }

  bool travels(ValueId v) const {
    const NodeId producer = graph_.value(v).producer;
    if (producer.valid() && is_message(node(producer.index()))) return true;
    return std::any_of(readers_[v.index()].begin(), readers_[v.index()].end(),
                       [&](size_t i) { return is_message(node(i)); });
  }

  // Whether the backward op `dx` may write what `again` computes: nobody before it needs the result.
  bool may_rewrite(size_t again, size_t dx) const {
    const ValueId y = node(again).outputs[0];
    return !leads(y, again, dx) && !travels(y) && !travels(node(dx).inputs[0]);
  }

  void fold_loss(size_t grad) {
    Node& merged = graph_.nodes()[grad];
    const ValueId logits = merged.inputs[0], max = merged.inputs[1], sums = merged.inputs[2],
                  labels = merged.inputs[3], seed = merged.inputs[4];
    const NodeId maximum = graph_.value(max).producer, sum = graph_.value(sums).producer;
    if (node(maximum.index()).op != &graph::kRowMax || node(sum.index()).op != &graph::kRowSumExp) return;
    QUINTET_CHECK(readers_[max.index()].size() == 2 && readers_[sums.index()].size() == 1,
                  "somebody else reads the sums of a row");
    merged.op = &graph::kCrossEntropy;
    merged.inputs = {logits, labels, seed};
    gone_[maximum.index()] = gone_[sum.index()] = 1;
  }

  void fold_swiglu(size_t dx) {
    Node& merged = graph_.nodes()[dx];
    const auto again = find(graph::kSwiGlu, merged.block, false, {merged.inputs[1], merged.inputs[2]});
    if (!again || !may_rewrite(*again, dx)) return;
    merged.op = &graph::kSwiGluBackward;
    merged.outputs.push_back(node(*again).outputs[0]);
    gone_[*again] = 1;
  }

  void fold_norm(size_t dx) {
    Node& merged = graph_.nodes()[dx];
    const ValueId dy = merged.inputs[0], x = merged.inputs[1], w = merged.inputs[2], rstd = merged.inputs[3];
    const auto dw = find(graph::kRmsNormDw, merged.block, false, {dy, x, rstd});
    if (!dw) return;
    const auto first = find(graph::kRmsNorm, merged.block, true, {x, w}),
               again = find(graph::kRmsNorm, merged.block, false, {x, w});
    const bool rewrites = first && again && node(*again).outputs[1] == rstd &&
                          readers_[rstd.index()].size() == 2 && may_rewrite(*again, dx);
    merged.op = &graph::kRmsNormBackward;
    merged.attrs = node(*dw).attrs;
    merged.attrs.set("again", int64_t{rewrites});
    merged.outputs.push_back(node(*dw).outputs[0]);
    gone_[*dw] = 1;
    if (!rewrites) return;
    merged.inputs[3] = node(*first).outputs[1];
    merged.outputs.push_back(node(*again).outputs[0]);
    gone_[*again] = 1;
  }

  // What is left in its old order, but for nodes that need what is now made later: they follow it.
  void reorder() {
    std::vector<Node> old = std::move(graph_.nodes()), order;
    std::vector<std::vector<layout::Division>> divisions;
    for (size_t v = 0; v < graph_.values().size(); ++v)
      graph_.value(ValueId(static_cast<int32_t>(v))).producer = {};
    const auto is_made = [&](ValueId v) {
      return graph_.value(v).kind != graph::ValueKind::Result || graph_.value(v).producer.valid();
    };
    std::vector<size_t> waiting;
    const auto place = [&](size_t i) {
      if (!std::all_of(old[i].inputs.begin(), old[i].inputs.end(), is_made)) return false;
      for (const ValueId out : old[i].outputs)
        graph_.value(out).producer = NodeId(static_cast<int32_t>(order.size()));
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
    QUINTET_CHECK(waiting.empty(), "{} nodes wait for what nobody makes", waiting.size());
    graph_.nodes() = std::move(order);
    local_.divisions = std::move(divisions);
  }

  layout::LocalGraph local_;
  Graph& graph_;
  std::vector<std::vector<size_t>> readers_;  // by value
  std::map<std::pair<const graph::OpDef*, int>, std::vector<size_t>> by_op_;
  std::vector<char> gone_;  // by node: folded into another
};

}  // namespace

layout::LocalGraph fold(layout::LocalGraph local, const FoldOptions& options) {
  return Fold(std::move(local)).run(options);
}

}  // namespace quintet::passes
