#include "passes/fold.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/error.h"
#include "graph/fuse_adds.h"
#include "graph/op.h"
#include "passes/rewrite.h"

namespace quintet::passes {

using graph::Node;
using graph::NodeId;
using graph::Phase;
using graph::ValueId;

namespace {

class Fold {
 public:
  explicit Fold(layout::LocalGraph local) : r_(std::move(local)) { index(); }

  layout::LocalGraph run(const FoldOptions& options) {
    for (size_t i = 0; i < r_.size(); ++i) {
      const graph::OpDef* const op = r_.node(i).op;
      if (op == &graph::kLossGrad) fold_loss(i);
      if (!options.backward) continue;
      if (op == &graph::kSwiGluDx) fold_swiglu(i);
      if (op == &graph::kRmsNormDx) fold_rms_norm(i);
      if (op == &graph::kLayerNormDx) fold_layer_norm(i);
    }
    // Which adds are fused into their producer depends on the order.
    r_ = Rewrite(r_.finish());
    index();
    const graph::FusedAdds fused = graph::fuse_adds(r_.graph());
    for (size_t i = 0; i < r_.size(); ++i)
      if (r_.node(i).op == &graph::kAdd && !fused.absorbed[i]) fold_sum(i);
    return r_.finish();
  }

 private:
  const Node& node(size_t i) const { return r_.node(i); }

  void index() {
    by_op_.clear();
    for (size_t i = 0; i < r_.size(); ++i) by_op_[{node(i).op, node(i).block}].push_back(i);
  }

  // The only node of a block with this op, in the forward pass or not, whose operands begin with `inputs`.
  std::optional<size_t> find(const graph::OpDef& op, int block, bool forward,
                             const std::vector<ValueId>& inputs) const {
    const auto at = by_op_.find({&op, block});
    if (at == by_op_.end()) return std::nullopt;
    for (const size_t i : at->second)
      if (!r_.is_gone(i) && (node(i).phase == Phase::F) == forward && node(i).inputs == inputs) return i;
    return std::nullopt;
  }

  // Whether a node depends on a value that another one produces, directly or through other nodes.
  bool leads(ValueId value, size_t producer, size_t to) const {
    std::vector<ValueId> found = {value};
    const auto needs = [&](size_t i) {
      return std::any_of(node(i).inputs.begin(), node(i).inputs.end(), [&](ValueId in) {
        return std::find(found.begin(), found.end(), in) != found.end();
      });
    };
    for (size_t i = producer + 1; i < to; ++i)
      if (needs(i)) found.insert(found.end(), node(i).outputs.begin(), node(i).outputs.end());
    return needs(to);
  }

  bool is_exchanged(ValueId v) const {
    const NodeId producer = r_.graph().value(v).producer;
    if (producer.valid() && is_message(node(producer.index()))) return true;
    return std::any_of(r_.readers(v).begin(), r_.readers(v).end(),
                       [&](size_t i) { return is_message(node(i)); });
  }

  // Whether the backward op `dx` may write what `again` computes: no earlier node needs the result.
  bool may_rewrite(size_t again, size_t dx) const {
    const ValueId y = node(again).outputs[0];
    return !leads(y, again, dx) && !is_exchanged(y) && !is_exchanged(node(dx).inputs[0]);
  }

  void fold_loss(size_t grad) {
    Node& merged = r_.node(grad);
    const ValueId logits = merged.inputs[0], max = merged.inputs[1], sums = merged.inputs[2],
                  labels = merged.inputs[3], seed = merged.inputs[4];
    const NodeId maximum = r_.graph().value(max).producer, sum = r_.graph().value(sums).producer;
    if (node(maximum.index()).op != &graph::kRowMax || node(sum.index()).op != &graph::kRowSumExp) return;
    QUINTET_CHECK(r_.readers(max).size() == 2 && r_.readers(sums).size() == 1,
                  "the row maximum or the row sums have another reader");
    merged.op = &graph::kCrossEntropy;
    merged.inputs = {logits, labels, seed};
    r_.remove(maximum.index());
    r_.remove(sum.index());
  }

  void fold_swiglu(size_t dx) {
    Node& merged = r_.node(dx);
    const auto again = find(graph::kSwiGlu, merged.block, false, {merged.inputs[1], merged.inputs[2]});
    if (!again || !may_rewrite(*again, dx)) return;
    merged.op = &graph::kSwiGluBackward;
    merged.outputs.push_back(node(*again).outputs[0]);
    r_.remove(*again);
  }

  void fold_rms_norm(size_t dx) {
    const std::vector<ValueId> in = node(dx).inputs;  // dy, x, w, rstd
    const auto dw = find(graph::kRmsNormDw, node(dx).block, false, {in[0], in[1], in[3]});
    if (dw) fold_norm(dx, *dw, graph::kRmsNorm, {in[1], in[2]}, graph::kRmsNormBackward, 3);
  }

  void fold_layer_norm(size_t dx) {
    const std::vector<ValueId> in = node(dx).inputs;  // dy, x, w, mean, rstd
    const auto dw = find(graph::kLayerNormDw, node(dx).block, false, {in[0], in[1], in[3], in[4]});
    if (!dw) return;
    const Node& producer = node(r_.graph().value(in[3]).producer.index());
    QUINTET_CHECK(producer.op == &graph::kLayerNorm, "the mean comes from [{}], expected [layer_norm]",
                  producer.op->name);
    r_.node(dx).inputs = {in[0], in[1], in[2], producer.inputs[2], in[3], in[4]};
    fold_norm(dx, *dw, graph::kLayerNorm, {in[1], in[2], producer.inputs[2]}, graph::kLayerNormBackward, 4);
  }

  // dx takes over its weight's gradients and, where possible, the norm that was to be recomputed. Its
  // operands from `stats` on are the statistics, which that norm returns after its result.
  void fold_norm(size_t dx, size_t dw, const graph::OpDef& norm, const std::vector<ValueId>& operands,
                 const graph::OpDef& backward, size_t stats) {
    Node& merged = r_.node(dx);
    const auto first = find(norm, merged.block, true, operands),
               again = find(norm, merged.block, false, operands);
    bool rewrites = first && again && may_rewrite(*again, dx);
    for (size_t i = stats; rewrites && i < merged.inputs.size(); ++i)  // no other node reads them
      rewrites =
          node(*again).outputs[1 + i - stats] == merged.inputs[i] && r_.readers(merged.inputs[i]).size() == 2;
    merged.op = &backward;
    for (const auto& [name, value] : node(dw).attrs.items()) merged.attrs.set(name, value);
    merged.attrs.set("again", int64_t{rewrites});
    merged.outputs.insert(merged.outputs.end(), node(dw).outputs.begin(), node(dw).outputs.end());
    r_.remove(dw);
    if (!rewrites) return;
    for (size_t i = stats; i < merged.inputs.size(); ++i)
      merged.inputs[i] = node(*first).outputs[1 + i - stats];
    merged.outputs.push_back(node(*again).outputs[0]);
    r_.remove(*again);
  }

  // At the position of the add: weights are available at any time.
  void fold_sum(size_t add) {
    Node& merged = r_.node(add);
    const ValueId sum = merged.outputs[0];
    const auto is_norm_of_it = [&](size_t i) {
      const Node& n = node(i);
      return (n.op == &graph::kRmsNorm || n.op == &graph::kLayerNorm) && n.inputs[0] == sum &&
             n.phase == merged.phase && n.block == merged.block && n.row_group < 0 &&
             std::all_of(n.inputs.begin() + 1, n.inputs.end(),
                         [&](ValueId w) { return !r_.graph().value(w).producer.valid(); });
    };
    const std::vector<size_t>& readers = r_.readers(sum);
    const auto norm = std::find_if(readers.begin(), readers.end(), is_norm_of_it);
    if (merged.row_group >= 0 || norm == readers.end()) return;
    const Node& taken = node(*norm);
    merged.op = taken.op == &graph::kRmsNorm ? &graph::kAddRmsNorm : &graph::kAddLayerNorm;
    merged.attrs = taken.attrs;
    merged.inputs.insert(merged.inputs.end(), taken.inputs.begin() + 1, taken.inputs.end());
    merged.outputs.insert(merged.outputs.end(), taken.outputs.begin(), taken.outputs.end());
    r_.take_divisions(add, *norm);
    r_.remove(*norm);
  }

  Rewrite r_;
  std::map<std::pair<const graph::OpDef*, int>, std::vector<size_t>> by_op_;
};

}  // namespace

layout::LocalGraph fold(layout::LocalGraph local, const FoldOptions& options) {
  return Fold(std::move(local)).run(options);
}

}  // namespace quintet::passes
