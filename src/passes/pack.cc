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

using Qkv = std::array<ValueId, 3>;
using Nodes = std::array<size_t, 3>;

size_t last_of(const std::vector<size_t>& nodes) { return *std::max_element(nodes.begin(), nodes.end()); }

class Pack {
 public:
  explicit Pack(layout::LocalGraph local) : r_(std::move(local)) {
    for (const graph::Param& p : r_.graph().params()) gradients_.insert(p.grads.begin(), p.grads.end());
  }

  layout::LocalGraph run() {
    // By what they read: attention, attention computed again, and its gradient.
    std::map<Qkv, std::vector<size_t>> uses;
    for (size_t i = 0; i < r_.size(); ++i) {
      const Node& n = r_.node(i);
      const size_t at = n.op == &graph::kAttentionDx ? 1 : 0;
      if (n.op != &graph::kAttention && n.op != &graph::kAttentionDx) continue;
      uses[{first(n.inputs[at]), first(n.inputs[at + 1]), n.inputs[at + 2]}].push_back(i);
    }
    for (const auto& [values, nodes] : uses) pack(values, nodes);
    return r_.finish();
  }

 private:
  // Rotations of q and k; none where positions are not rotary.
  using Ropes = std::optional<std::array<size_t, 2>>;
  struct Forward {
    Nodes linears;
    Ropes ropes;
    std::vector<size_t> repeated;  // rotations
    ValueId x;
    std::array<ValueId, 3> weights;
  };
  struct Backward {
    Ropes ropes;
    Nodes dx, dw;
    std::vector<size_t> adds;  // of the three dx
    ValueId sum, x;
  };

  void pack(const Qkv& values, const std::vector<size_t>& uses) {
    if (!fit_together(values) || r_.node(uses[0]).attrs.real("dropout") > 0) return;
    for (const ValueId v : values)
      if (readers(v) != uses) return;
    const auto forward = find_forward(values);
    if (!forward) return;
    std::optional<Backward> backward;
    size_t dx = 0;
    for (const size_t i : uses) {
      if (r_.node(i).op != &graph::kAttentionDx) continue;
      if (backward) return;
      backward = find_backward(r_.node(i), *forward);
      if (!backward) return;
      dx = i;
    }
    write_forward(values, *forward, uses);
    if (backward) write_backward(dx, *backward, *forward);
  }

  // All rotations that give the same as the one that made v; none where v is not rotated.
  std::vector<size_t> rotations_of(ValueId v) const {
    std::vector<size_t> all;
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
    const std::vector<size_t> rotations = rotations_of(rotated);
    return rotations.empty() ? rotated : r_.node(rotations[0]).outputs[0];
  }

  // The nodes that read a value, or what a later rotation made equal to it.
  std::vector<size_t> readers(ValueId v) const {
    std::vector<size_t> all = r_.readers(v);
    for (const size_t i : rotations_of(v)) {
      const ValueId same = r_.node(i).outputs[0];
      if (same != v) all.insert(all.end(), r_.readers(same).begin(), r_.readers(same).end());
    }
    std::sort(all.begin(), all.end());
    return all;
  }

  const graph::Type& type(ValueId v) const { return r_.graph().type(v); }

  bool fit_together(const Qkv& v) const {
    return v[1] != v[2] && type(v[0]).dims[0] == type(v[1]).dims[0] &&
           type(v[0]).dims[0] == type(v[2]).dims[0] && type(v[0]).dims[2] == type(v[1]).dims[2] &&
           type(v[0]).dims[2] == type(v[2]).dims[2];
  }

  // The two values that a rotation each made of `from`'s first two, or nothing is rotated at all. Null: one
  // is, or they differ.
  std::optional<Ropes> find_ropes(const Qkv& rotated) const {
    const Node *q = r_.maker(rotated[0]), *k = r_.maker(rotated[1]);
    if (q == nullptr || k == nullptr) return std::nullopt;
    if (q->op != &graph::kRope && k->op != &graph::kRope) return Ropes{};
    if (q->op != k->op || q->attrs != k->attrs || q->inputs[1] != k->inputs[1] || q->phase != k->phase)
      return std::nullopt;
    return Ropes{{r_.maker_index(rotated[0]), r_.maker_index(rotated[1])}};
  }

  std::optional<Forward> find_forward(Qkv values) const {
    const auto ropes = find_ropes(values);
    if (!ropes) return std::nullopt;
    Forward f{.linears = {}, .ropes = *ropes, .repeated = {}, .x = {}, .weights = {}};
    if (f.ropes)
      for (size_t i = 0; i < 2; ++i) {
        const std::vector<size_t> rotations = rotations_of(values[i]);
        values[i] = r_.node((*f.ropes)[i]).inputs[0];
        if (r_.readers(values[i]) != rotations) return std::nullopt;
        f.repeated.insert(f.repeated.end(), rotations.begin() + 1, rotations.end());
      }
    for (size_t i = 0; i < 3; ++i) {
      const Node* const linear = r_.maker(values[i]);
      if (linear == nullptr || linear->op != &graph::kLinear || linear->inputs.size() != 2)
        return std::nullopt;
      f.linears[i] = r_.maker_index(values[i]);
      f.weights[i] = linear->inputs[1];
      if (i > 0 && (linear->inputs[0] != f.x || !is_beside(f.linears[i], f.linears[0]))) return std::nullopt;
      f.x = linear->inputs[0];
    }
    return f;
  }

  // In the same body.
  bool is_beside(size_t a, size_t b) const {
    return r_.node(a).phase == r_.node(b).phase && r_.node(a).block == r_.node(b).block &&
           r_.node(a).row_group < 0 && r_.node(b).row_group < 0;
  }

  std::optional<Backward> find_backward(const Node& dx, const Forward& forward) const {
    Backward b{.ropes = {}, .dx = {}, .dw = {}, .adds = {}, .sum = {}, .x = {}};
    Qkv grads = {dx.outputs[0], dx.outputs[1], dx.outputs[2]};
    if (forward.ropes) {
      std::array<size_t, 2> ropes{};
      for (size_t i = 0; i < 2; ++i) {
        if (r_.readers(grads[i]).size() != 1) return std::nullopt;
        ropes[i] = r_.readers(grads[i])[0];
        const Node& rope = r_.node(ropes[i]);
        if (rope.op != &graph::kRope || rope.attrs != r_.node(ropes[0]).attrs ||
            rope.inputs[1] != r_.node(ropes[0]).inputs[1])
          return std::nullopt;
        grads[i] = rope.outputs[0];
      }
      b.ropes = ropes;
    }
    for (size_t i = 0; i < 3; ++i)
      if (!find_gradients(grads[i], forward.weights[i], i, b)) return std::nullopt;
    return sum_of(b) ? std::optional(b) : std::nullopt;
  }

  // What a projection's gradient goes into: one product for the input, one for the weight.
  bool find_gradients(ValueId grad, ValueId weight, size_t i, Backward& b) const {
    const std::vector<size_t>& readers = r_.readers(grad);
    if (readers.size() != 2) return false;
    const bool swapped = r_.node(readers[0]).op != &graph::kLinearDx;
    b.dx[i] = readers[swapped ? 1 : 0];
    b.dw[i] = readers[swapped ? 0 : 1];
    const Node &dx = r_.node(b.dx[i]), &dw = r_.node(b.dw[i]);
    if (dx.op != &graph::kLinearDx || dx.inputs.size() != 2 || dx.inputs[1] != weight ||
        dw.op != &graph::kLinearDw || dw.inputs[0] != grad || !gradients_.contains(dw.outputs[0]))
      return false;
    if (i == 0) b.x = dw.inputs[1];
    return dw.inputs[1] == b.x && dw.attrs == r_.node(b.dw[0]).attrs && is_beside(b.dx[i], b.dx[0]) &&
           is_beside(b.dw[i], b.dw[0]);
  }

  // The three dx are added to each other and to nothing else.
  bool sum_of(Backward& b) const {
    std::set<ValueId> open;
    for (const size_t i : b.dx) open.insert(r_.node(i).outputs[0]);
    while (open.size() > 1) {
      std::optional<size_t> found;
      for (const ValueId v : open) {
        if (r_.readers(v).size() != 1) return false;
        const size_t reader = r_.readers(v)[0];
        const Node& add = r_.node(reader);
        if (add.op == &graph::kAdd && is_beside(reader, b.dx[0]) && open.contains(add.inputs[0]) &&
            open.contains(add.inputs[1]) && add.inputs[0] != add.inputs[1])
          found = reader;
      }
      if (!found) return false;
      const Node& add = r_.node(*found);
      open.erase(add.inputs[0]);
      open.erase(add.inputs[1]);
      open.insert(add.outputs[0]);
      b.adds.push_back(*found);
    }
    b.sum = *open.begin();
    return true;
  }

  // The last of some nodes becomes all of them.
  Node& merge(const std::vector<size_t>& nodes) {
    const size_t last = last_of(nodes);
    for (const size_t i : nodes)
      if (i != last) r_.remove(i);
    return r_.node(last);
  }

  void write_ropes(const std::array<size_t, 2>& ropes, ValueId from, ValueId to, int64_t heads) {
    Node& rope = merge({ropes[0], ropes[1]});
    rope.op = &graph::kRopeFirst;
    rope.attrs.set("heads", heads);
    rope.inputs[0] = from;
    rope.outputs = {to};
  }

  void write_forward(const Qkv& values, const Forward& f, const std::vector<size_t>& uses) {
    const int64_t heads = type(values[0]).size(1), kv_heads = type(values[1]).size(1);
    graph::Type packed = type(values[0]);
    packed.dims[1].size = heads + 2 * kv_heads;
    const ValueId made = r_.add_value(packed), rotated = f.ropes ? r_.add_value(packed) : made;
    Node& linears = merge({f.linears.begin(), f.linears.end()});
    linears.op = &graph::kLinears;
    linears.inputs = {f.x, f.weights[0], f.weights[1], f.weights[2]};
    linears.outputs = {made};
    if (f.ropes) write_ropes(*f.ropes, made, rotated, heads + kv_heads);
    for (const size_t i : f.repeated) r_.remove(i);
    for (const size_t i : uses) {
      Node& use = r_.node(i);
      const bool is_dx = use.op == &graph::kAttentionDx;
      const auto first = use.inputs.begin() + (is_dx ? 1 : 0);
      *first = rotated;
      use.inputs.erase(first + 1, first + 3);
      use.op = is_dx ? &graph::kQkvAttentionDx : &graph::kQkvAttention;
      use.attrs.set("heads", heads);
      use.attrs.set("kv_heads", kv_heads);
    }
  }

  void write_backward(size_t attention_dx, const Backward& b, const Forward& f) {
    Node& attention = r_.node(attention_dx);
    const graph::Type packed = type(attention.inputs[1]);
    const int64_t heads = attention.attrs.integer("heads"), kv_heads = attention.attrs.integer("kv_heads");
    const ValueId made = r_.add_value(packed), turned = b.ropes ? r_.add_value(packed) : made;
    r_.node(attention_dx).outputs = {made};
    if (b.ropes) write_ropes(*b.ropes, made, turned, heads + kv_heads);
    Node& dx = merge({b.dx.begin(), b.dx.end()});
    dx.op = &graph::kLinearsDx;
    dx.inputs = {turned, f.weights[0], f.weights[1], f.weights[2]};
    dx.outputs = {b.sum};
    for (const size_t add : b.adds) r_.remove(add);
    std::vector<ValueId> gradients;
    std::string parts;
    for (const size_t i : b.dw) {
      gradients.push_back(r_.node(i).outputs[0]);
      const graph::DimSize& first = type(gradients.back()).dims[0];
      parts += fmt::format("{}{}={}", parts.empty() ? "" : " ", graph::to_string(first.name), first.size);
    }
    Node& dw = merge({b.dw.begin(), b.dw.end()});
    dw.op = &graph::kLinearsDw;
    dw.attrs.set("parts", parts);
    dw.inputs = {turned, b.x};
    dw.outputs = std::move(gradients);
  }

  Rewrite r_;
  std::set<ValueId> gradients_;  // of parameters, here and whole
};

}  // namespace

layout::LocalGraph pack(layout::LocalGraph local) { return Pack(std::move(local)).run(); }

}  // namespace quintet::passes
