#include "passes/fold_codes.h"

#include <optional>

#include "graph/fp8_ops.h"
#include "passes/rewrite.h"

namespace quintet::passes {

using graph::Node;
using graph::ValueId;

namespace {

class FoldCodes {
 public:
  explicit FoldCodes(layout::LocalGraph local) : r_(std::move(local)) {}

  layout::LocalGraph run() {
    for (size_t i = 0; i < r_.size(); ++i) {
      const graph::OpDef* const op = r_.node(i).op;
      if (op == &graph::kRmsNorm) fold_result(i, 0, graph::kRmsNormQuantize);
      if (op == &graph::kAddRmsNorm) fold_result(i, 1, graph::kAddRmsNormQuantize);
      if (op == &graph::kSwiGlu) fold_result(i, 0, graph::kSwiGluQuantize);
      if (op == &graph::kSwiGluDx || op == &graph::kSwiGluBackward) fold_swiglu_gradient(i);
      if (op == &graph::kRmsNormBackward) fold_norm_again(i);
    }
    return r_.finish();
  }

 private:
  // The only reader of a value, if it quantises the value's rows in the same body as `producer` with these
  // results.
  std::optional<size_t> quantize_of(ValueId v, size_t producer, std::optional<bool> measures, bool plain,
                                    bool transposed) const {
    if (r_.readers(v).size() != 1) return std::nullopt;
    const size_t reader = r_.readers(v)[0];
    const Node &q = r_.node(reader), &p = r_.node(producer);
    if (q.op != &graph::kQuantize || q.inputs.size() != 2 || q.attrs.integer("rows") != 1 ||
        q.phase != p.phase || q.block != p.block || q.row_group >= 0 || p.row_group >= 0)
      return std::nullopt;
    if (q.attrs.integer("plain") != plain || q.attrs.integer("transposed") != transposed ||
        (measures && q.attrs.integer("measures") != *measures))
      return std::nullopt;
    return reader;
  }

  // Gives a node the scales, attributes and results of a quantize node, which is removed.
  void take(size_t producer, size_t quantize) {
    Node& p = r_.node(producer);
    const Node& q = r_.node(quantize);
    p.inputs.push_back(q.inputs[1]);
    for (const auto& [name, value] : q.attrs.items())
      if (name != "rows") p.attrs.set(name, value);
    p.outputs.insert(p.outputs.end(), q.outputs.begin(), q.outputs.end());
    r_.remove(quantize);
  }

  void fold_result(size_t producer, size_t y, const graph::OpDef& fused) {
    const ValueId value = r_.node(producer).outputs[y];
    if (graph::norm_dims(r_.node(producer).attrs) != 1 || r_.graph().type(value).num_dims() != 2) return;
    const auto quantize = quantize_of(value, producer, std::nullopt, true, false);
    if (!quantize) return;
    Node& p = r_.node(producer);
    p.op = &fused;
    p.outputs.erase(p.outputs.begin() + static_cast<ptrdiff_t>(y));
    take(producer, *quantize);
  }

  // Packed gradients of gate and up; with swiglu_backward also swiglu's result.
  void fold_swiglu_gradient(size_t producer) {
    const Node& p = r_.node(producer);
    const bool again = p.op == &graph::kSwiGluBackward;
    if (p.inputs.size() != 2) return;
    const auto gradients = quantize_of(p.outputs[0], producer, true, true, true);
    const auto result = again ? quantize_of(p.outputs[1], producer, false, false, true) : std::nullopt;
    if (!gradients || (again && !result)) return;
    Node& fused = r_.node(producer);
    fused.op = &graph::kSwiGluBackwardQuantize;
    fused.outputs.clear();
    take(producer, *gradients);
    fused.attrs.set("again", int64_t{again});
    fused.attrs.set("again_scale", again ? r_.node(*result).attrs.integer("scale") : int64_t{0});
    if (!again) return;
    fused.outputs.push_back(r_.node(*result).outputs[0]);
    r_.remove(*result);
  }

  // The backward op no longer writes the norm's result: the quantize node makes its codes from what the norm
  // read.
  void fold_norm_again(size_t producer) {
    const Node& p = r_.node(producer);
    if (p.attrs.integer("again") == 0 || graph::norm_dims(p.attrs) != 1) return;
    const ValueId y = p.outputs.back();
    if (r_.graph().type(y).num_dims() != 2) return;
    const auto quantize = quantize_of(y, producer, false, false, true);
    if (!quantize) return;
    Node& q = r_.node(*quantize);
    graph::Attrs attrs{{"format", q.attrs.text("format")}, {"scale", q.attrs.integer("scale")}};
    if (p.attrs.find("offset") != nullptr) attrs.set("offset", p.attrs.real("offset"));
    q.op = &graph::kRmsNormAgainQuantize;
    q.inputs = {p.inputs[1], p.inputs[2], p.inputs[3], q.inputs[1]};
    q.attrs = std::move(attrs);
    Node& backward = r_.node(producer);
    backward.attrs.set("again", int64_t{0});
    backward.outputs.pop_back();
  }

  Rewrite r_;
};

}  // namespace

layout::LocalGraph fold_codes(layout::LocalGraph local) { return FoldCodes(std::move(local)).run(); }

}  // namespace quintet::passes
