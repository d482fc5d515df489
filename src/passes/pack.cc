#include "passes/pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "graph/op.h"
#include "passes/rewrite.h"

namespace quintet::passes {

using graph::Node;
using graph::ValueId;

namespace {

using Values = std::vector<ValueId>;
using Indices = std::vector<size_t>;  // of nodes

class Pack {
 public:
  explicit Pack(layout::LocalGraph local) : r_(std::move(local)) {
    for (const graph::Param& p : r_.graph().params()) gradients_.insert(p.grads.begin(), p.grads.end());
  }

  layout::LocalGraph run() {
    // By what they read: an op, the same computed again, and its gradient.
    std::map<Values, Indices> attention, swiglu;
    for (size_t i = 0; i < r_.size(); ++i) {
      const Node& n = r_.node(i);
      const auto operand = [&](size_t at) { return n.inputs[at]; };
      if (n.op == &graph::kAttention || n.op == &graph::kAttentionDx) {
        const size_t q = n.op == &graph::kAttention ? 0 : 1;
        attention[{first(operand(q)), first(operand(q + 1)), operand(q + 2)}].push_back(i);
      }
      if (n.op == &graph::kSwiGlu) swiglu[{operand(0), operand(1)}].push_back(i);
      if (is_swiglu_gradient(n)) swiglu[{operand(1), operand(2)}].push_back(i);
    }
    for (const auto& [values, uses] : attention) pack_attention(values, uses);
    for (const auto& [values, uses] : swiglu) pack_swiglu(values, uses);
    return r_.finish();
  }

 private:
  // ---- Projections: linear ops of one input, and what their gradients go into ----

  struct Projections {
    Indices linears;
    Values weights;
    ValueId x;
  };
  std::optional<Projections> find_projections(const Values& values) const {
    Projections p;
    for (const ValueId v : values) {
      const Node* const linear = r_.maker(v);
      if (linear == nullptr || linear->op != &graph::kLinear || linear->inputs.size() != 2)
        return std::nullopt;
      p.linears.push_back(r_.maker_index(v));
      p.weights.push_back(linear->inputs[1]);
      p.x = linear->inputs[0];
      if (p.x != r_.node(p.linears[0]).inputs[0] || !is_beside(p.linears.back(), p.linears[0]))
        return std::nullopt;
    }
    return p;
  }

  struct Gradients {
    Indices dx, dw, adds;  // adds: of the dx to each other
    ValueId sum, x;
  };
  std::optional<Gradients> find_gradients(const Values& grads, const Projections& p) const {
    Gradients g;
    for (size_t i = 0; i < grads.size(); ++i) {
      const Indices& readers = r_.readers(grads[i]);
      if (readers.size() != 2) return std::nullopt;
      const bool swapped = r_.node(readers[0]).op != &graph::kLinearDx;
      g.dx.push_back(readers[swapped ? 1 : 0]);
      g.dw.push_back(readers[swapped ? 0 : 1]);
      const Node &dx = r_.node(g.dx[i]), &dw = r_.node(g.dw[i]), &dw0 = r_.node(g.dw[0]);
      if (dx.op != &graph::kLinearDx || dx.inputs.size() != 2 || dx.inputs[1] != p.weights[i] ||
          !is_beside(g.dx[i], g.dx[0]))
        return std::nullopt;
      // A gradient that is summed over ranks first is not the parameter's own yet, and may travel apart.
      if (dw.op != &graph::kLinearDw || dw.inputs[0] != grads[i] || dw.inputs[1] != dw0.inputs[1] ||
          dw.attrs != dw0.attrs || !gradients_.contains(dw.outputs[0]) || !is_beside(g.dw[i], g.dw[0]))
        return std::nullopt;
      g.x = dw.inputs[1];
    }
    return sum_of(g) ? std::optional(g) : std::nullopt;
  }

  // Whether all dx are added to each other and to nothing else.
  bool sum_of(Gradients& g) const {
    std::set<ValueId> open;
    for (const size_t i : g.dx) open.insert(r_.node(i).outputs[0]);
    while (open.size() > 1) {
      std::optional<size_t> found;
      for (const ValueId v : open) {
        if (r_.readers(v).size() != 1) return false;
        const size_t reader = r_.readers(v)[0];
        const Node& add = r_.node(reader);
        if (add.op == &graph::kAdd && is_beside(reader, g.dx[0]) && open.contains(add.inputs[0]) &&
            open.contains(add.inputs[1]) && add.inputs[0] != add.inputs[1])
          found = reader;
      }
      if (!found) return false;
      const Node& add = r_.node(*found);
      open.erase(add.inputs[0]);
      open.erase(add.inputs[1]);
      open.insert(add.outputs[0]);
      g.adds.push_back(*found);
    }
    g.sum = *open.begin();
    return true;
  }

  // In the same body.
  bool is_beside(size_t a, size_t b) const {
    return r_.node(a).phase == r_.node(b).phase && r_.node(a).block == r_.node(b).block &&
           r_.node(a).row_group < 0 && r_.node(b).row_group < 0;
  }

  void write_projections(const Projections& p, ValueId to) {
    Node& linears = merge(p.linears);
    linears.op = &graph::kLinears;
    linears.inputs = {p.x};
    linears.inputs.insert(linears.inputs.end(), p.weights.begin(), p.weights.end());
    linears.outputs = {to};
  }

  void write_gradients(const Gradients& g, const Projections& p, ValueId from) {
    Node& dx = merge(g.dx);
    dx.op = &graph::kLinearsDx;
    dx.inputs = {from};
    dx.inputs.insert(dx.inputs.end(), p.weights.begin(), p.weights.end());
    dx.outputs = {g.sum};
    for (const size_t add : g.adds) r_.remove(add);
    Values gradients;
    std::string parts;
    for (const size_t i : g.dw) {
      gradients.push_back(r_.node(i).outputs[0]);
      const graph::DimSize& size = type(gradients.back()).dims[0];
      parts += fmt::format("{}{}={}", parts.empty() ? "" : " ", graph::to_string(size.name), size.size);
    }
    Node& dw = merge(g.dw);
    dw.op = &graph::kLinearsDw;
    dw.attrs.set("parts", parts);
    dw.inputs = {from, g.x};
    dw.outputs = std::move(gradients);
  }

  // The last of some nodes becomes all of them.
  Node& merge(const Indices& nodes) {
    const size_t last = *std::max_element(nodes.begin(), nodes.end());
    for (const size_t i : nodes)
      if (i != last) r_.remove(i);
    return r_.node(last);
  }

  const graph::Type& type(ValueId v) const { return r_.graph().type(v); }

  // ---- Attention: q, k and v, of which q and k may be rotated in between ----

  void pack_attention(const Values& values, const Indices& uses) {
    if (!is_qkv(values) || r_.node(uses[0]).attrs.real("dropout") > 0) return;
    for (const ValueId v : values)
      if (readers(v) != uses) return;
    const auto ropes = find_ropes(values);
    if (!ropes) return;
    const auto projections =
        find_projections({before_rope(values[0], *ropes), before_rope(values[1], *ropes), values[2]});
    if (!projections) return;
    const auto dx = std::find_if(uses.begin(), uses.end(),
                                 [&](size_t i) { return r_.node(i).op == &graph::kAttentionDx; });
    if (dx == uses.end()) return write_attention(values, *ropes, *projections, uses);
    if (std::any_of(dx + 1, uses.end(), [&](size_t i) { return r_.node(i).op == &graph::kAttentionDx; }))
      return;
    Values grads = r_.node(*dx).outputs;
    const auto back = find_ropes_back(grads, !ropes->empty());
    if (!back) return;
    for (size_t i = 0; i < back->size(); ++i) grads[i] = r_.node((*back)[i]).outputs[0];
    const auto gradients = find_gradients(grads, *projections);
    if (!gradients) return;
    write_attention(values, *ropes, *projections, uses);
    const graph::Type packed = type(r_.node(*dx).inputs[1]);
    const int64_t rotated = type(values[0]).size(1) + type(values[1]).size(1);
    const ValueId made = r_.add_value(packed), turned = back->empty() ? made : r_.add_value(packed);
    r_.node(*dx).outputs = {made};
    if (!back->empty()) write_ropes(*back, made, turned, rotated);
    write_gradients(*gradients, *projections, turned);
  }

  bool is_qkv(const Values& v) const {
    const auto alike = [&](ValueId a, ValueId b) {
      return type(a).dims[0] == type(b).dims[0] && type(a).dims[2] == type(b).dims[2];
    };
    return v[1] != v[2] && alike(v[0], v[1]) && alike(v[0], v[2]);
  }

  // All rotations that give the same as the one that made v; none where v is not rotated.
  Indices rotations_of(ValueId v) const {
    Indices all;
    const Node* const rope = r_.maker(v);
    if (rope == nullptr || rope->op != &graph::kRope) return all;
    for (const size_t i : r_.readers(rope->inputs[0]))
      if (r_.node(i).op == &graph::kRope && r_.node(i).inputs == rope->inputs &&
          r_.node(i).attrs == rope->attrs)
        all.push_back(i);
    return all;
  }

  // What the first of them made. A rotation that is computed again from a value that was kept is not worth
  // it: side by side the rotated values take the place of those, so they are kept instead.
  ValueId first(ValueId rotated) const {
    const Indices rotations = rotations_of(rotated);
    return rotations.empty() ? rotated : r_.node(rotations[0]).outputs[0];
  }

  // The nodes that read a value, or what a later rotation made equal to it.
  Indices readers(ValueId v) const {
    Indices all = r_.readers(v);
    for (const size_t i : rotations_of(v)) {
      const ValueId same = r_.node(i).outputs[0];
      if (same != v) all.insert(all.end(), r_.readers(same).begin(), r_.readers(same).end());
    }
    std::sort(all.begin(), all.end());
    return all;
  }

  ValueId before_rope(ValueId v, const Indices& ropes) const {
    return ropes.empty() ? v : r_.maker(v)->inputs[0];
  }

  // The rotations of q and of k, alike and of values that nobody else reads; empty: neither is rotated.
  std::optional<Indices> find_ropes(const Values& values) const {
    Indices ropes;
    for (const ValueId v : {values[0], values[1]}) {
      const Indices rotations = rotations_of(v);
      if (rotations.empty()) continue;
      if (r_.readers(r_.node(rotations[0]).inputs[0]) != rotations) return std::nullopt;
      ropes.push_back(rotations[0]);
    }
    return are_alike(ropes) ? std::optional(ropes) : std::nullopt;
  }
  std::optional<Indices> find_ropes_back(const Values& grads, bool rotated) const {
    Indices ropes;
    for (size_t i = 0; rotated && i < 2; ++i) {
      if (r_.readers(grads[i]).size() != 1) return std::nullopt;
      ropes.push_back(r_.readers(grads[i])[0]);
      if (r_.node(ropes.back()).op != &graph::kRope) return std::nullopt;
    }
    return are_alike(ropes) ? std::optional(ropes) : std::nullopt;
  }
  bool are_alike(const Indices& ropes) const {
    if (ropes.empty()) return true;
    if (ropes.size() != 2) return false;
    const Node &q = r_.node(ropes[0]), &k = r_.node(ropes[1]);
    return q.attrs == k.attrs && q.inputs[1] == k.inputs[1] && is_beside(ropes[0], ropes[1]);
  }

  void write_ropes(const Indices& ropes, ValueId from, ValueId to, int64_t heads) {
    Node& rope = merge(ropes);
    rope.op = &graph::kRopeFirst;
    rope.attrs.set("heads", heads);
    rope.inputs[0] = from;
    rope.outputs = {to};
  }

  void write_attention(const Values& values, const Indices& ropes, const Projections& p,
                       const Indices& uses) {
    const int64_t heads = type(values[0]).size(1), kv_heads = type(values[1]).size(1);
    graph::Type packed = type(values[0]);
    packed.dims[1].size = heads + 2 * kv_heads;
    const ValueId made = r_.add_value(packed), rotated = ropes.empty() ? made : r_.add_value(packed);
    for (const ValueId v : {values[0], values[1]})
      for (const size_t i : rotations_of(v))
        if (std::find(ropes.begin(), ropes.end(), i) == ropes.end()) r_.remove(i);
    write_projections(p, made);
    if (!ropes.empty()) write_ropes(ropes, made, rotated, heads + kv_heads);
    for (const size_t i : uses) {
      Node& use = r_.node(i);
      const bool is_dx = use.op == &graph::kAttentionDx;
      const auto q = use.inputs.begin() + (is_dx ? 1 : 0);
      *q = rotated;
      use.inputs.erase(q + 1, q + 3);
      use.op = is_dx ? &graph::kQkvAttentionDx : &graph::kQkvAttention;
      use.attrs.set("heads", heads);
      use.attrs.set("kv_heads", kv_heads);
    }
  }

  // ---- SwiGLU: gate and up ----

  static bool is_swiglu_gradient(const Node& n) {
    return n.op == &graph::kSwiGluDx || n.op == &graph::kSwiGluBackward;
  }

  void pack_swiglu(const Values& values, const Indices& uses) {
    for (const ValueId v : values)
      if (r_.readers(v) != uses) return;
    const auto projections = find_projections(values);
    if (!projections || values[0] == values[1]) return;
    std::optional<Gradients> gradients;
    size_t dx = 0;
    for (const size_t i : uses) {
      if (!is_swiglu_gradient(r_.node(i))) continue;
      if (gradients) return;
      gradients = find_gradients({r_.node(i).outputs[0], r_.node(i).outputs[1]}, *projections);
      if (!gradients) return;
      dx = i;
    }
    graph::Type packed = type(values[0]);
    packed.dims[1].size *= 2;
    const ValueId made = r_.add_value(packed);
    write_projections(*projections, made);
    for (const size_t i : uses) {
      Values& inputs = r_.node(i).inputs;
      inputs.pop_back();
      inputs.back() = made;
    }
    if (!gradients) return;
    const ValueId grad = r_.add_value(packed);
    Values& outputs = r_.node(dx).outputs;
    outputs.erase(outputs.begin());
    outputs[0] = grad;
    write_gradients(*gradients, *projections, grad);
  }

  Rewrite r_;
  std::set<ValueId> gradients_;  // of parameters, here and whole
};

}  // namespace

layout::LocalGraph pack(layout::LocalGraph local) { return Pack(std::move(local)).run(); }

}  // namespace quintet::passes
