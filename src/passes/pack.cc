#include "passes/pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "graph/cache_ops.h"
#include "graph/fp8_ops.h"
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
    for (const graph::Param& p : r_.graph().params()) {
      gradients_.insert(p.grads.begin(), p.grads.end());
      if (p.grads.size() > 1) shared_.insert(p.value);
    }
  }

  layout::LocalGraph run() {
    // By what they read: an op, the same op recomputed, and its gradient.
    std::map<Values, Indices> attention, swiglu;
    for (size_t i = 0; i < r_.size(); ++i) {
      const Node& n = r_.node(i);
      const auto operand = [&](size_t at) { return n.inputs[at]; };
      if (is_attention(n)) {
        const size_t q = query_of(n);
        attention[{first(operand(q)), first(operand(q + 1)), operand(q + 2)}].push_back(i);
      }
      if (n.op == &graph::kSwiGlu) swiglu[{operand(0), operand(1)}].push_back(i);
      if (is_swiglu_gradient(n)) swiglu[{operand(1), operand(2)}].push_back(i);
    }
    std::vector<Group> groups;
    for (const auto& [values, uses] : attention) find_attention(values, uses, groups);
    for (const auto& [values, uses] : swiglu) find_swiglu(values, uses, groups);
    for (const Group& g : groups)
      if (!apart_.contains(g.projections.weights)) write(g);
    return r_.finish();
  }

 private:
  // ---- Projections: linear ops of one input, and the consumers of their gradients ----

  struct Projections {
    Indices linears;
    Indices codes;  // quantised linears: the quantize nodes of their weights
    Values weights;
    ValueId x;  // or its codes
    bool quantised() const { return !codes.empty(); }
  };
  std::optional<Projections> find_projections(const Values& values) const {
    Projections p;
    for (const ValueId v : values) {
      const Node* const linear = r_.producer(v);
      if (linear == nullptr || !(is_plain(*linear) || is_scaled(*linear))) return std::nullopt;
      p.linears.push_back(r_.producer_index(v));
      const Node& first = r_.node(p.linears[0]);
      if (linear->op != first.op || linear->attrs != first.attrs) return std::nullopt;
      p.weights.push_back(is_scaled(*linear) ? quantized_weight(linear->inputs[1], p.codes)
                                             : linear->inputs[1]);
      p.x = linear->inputs[0];
      if (p.x != first.inputs[0] || !p.weights.back().valid() ||
          !in_same_body(p.linears.back(), p.linears[0]))
        return std::nullopt;
    }
    if (!alike(p.codes)) return std::nullopt;
    // A parameter that other layers use too gets contributions from them: whether this one is the first
    // differs from parameter to parameter, and one op either adds to all or to none.
    const std::set<ValueId> distinct(p.weights.begin(), p.weights.end());
    if (distinct.size() != p.weights.size() ||
        std::any_of(distinct.begin(), distinct.end(), [&](ValueId w) { return shared_.contains(w); }))
      return std::nullopt;
    return p;
  }

  static bool is_plain(const Node& n) { return n.op == &graph::kLinear && n.inputs.size() == 2; }
  // Linear layers on codes, without an addend. Operands 0 and 1 are codes; those after them decode these.
  static bool is_scaled(const Node& n) {
    return graph::is_code_linear(*n.op) && static_cast<int>(n.inputs.size()) == n.op->min_inputs;
  }
  static bool is_scaled_dx(const Node& n) {
    return (n.op == &graph::kScaledLinearDx || n.op == &graph::kBlockLinearDx) &&
           static_cast<int>(n.inputs.size()) == n.op->min_inputs;
  }
  static bool is_scaled_dw(const Node& n) {
    return n.op == &graph::kScaledLinearDw || n.op == &graph::kBlockLinearDw;
  }
  // A node that makes codes of one value.
  static bool quantizes_one(const Node& n) {
    return graph::makes_codes(*n.op) && static_cast<int>(n.inputs.size()) == n.op->min_inputs;
  }

  // The parameter whose codes these are, if nothing else reads them; its quantize node is added to `nodes`.
  ValueId quantized_weight(ValueId codes, Indices& nodes) const {
    const Node* const n = r_.producer(codes);
    if (n == nullptr || !quantizes_one(*n) || r_.readers(codes).size() != 1 ||
        r_.graph().find_param(n->inputs[0]) == nullptr)
      return {};
    nodes.push_back(r_.producer_index(codes));
    return n->inputs[0];
  }

  // Whether quantize nodes make the same results with the same scale, in one body.
  bool alike(const Indices& nodes) const {
    return std::all_of(nodes.begin(), nodes.end(), [&](size_t i) {
      return r_.node(i).attrs == r_.node(nodes[0]).attrs && in_same_body(i, nodes[0]);
    });
  }

  struct Gradients {
    Indices dx, dw, adds;  // adds: sums of the dx
    ValueId sum, x;
    Indices codes, weight_codes;  // quantised linears: the quantize nodes of dy and of weights
  };
  std::optional<Gradients> find_gradients(const Values& grads, const Projections& p) const {
    if (p.quantised()) return find_scaled_gradients(grads, p);
    Gradients g;
    for (size_t i = 0; i < grads.size(); ++i) {
      const Indices& readers = r_.readers(grads[i]);
      if (readers.size() != 2) return std::nullopt;
      const bool swapped = r_.node(readers[0]).op != &graph::kLinearDx;
      g.dx.push_back(readers[swapped ? 1 : 0]);
      g.dw.push_back(readers[swapped ? 0 : 1]);
      const Node &dx = r_.node(g.dx[i]), &dw = r_.node(g.dw[i]), &dw0 = r_.node(g.dw[0]);
      if (dx.op != &graph::kLinearDx || dx.inputs.size() != 2 || dx.inputs[1] != p.weights[i] ||
          !in_same_body(g.dx[i], g.dx[0]))
        return std::nullopt;
      // A gradient that is first summed over ranks is not final yet, and may be sent separately.
      if (dw.op != &graph::kLinearDw || dw.inputs[0] != grads[i] || dw.inputs[1] != dw0.inputs[1] ||
          dw.attrs != dw0.attrs || !gradients_.contains(dw.outputs[0]) || !in_same_body(g.dw[i], g.dw[0]))
        return std::nullopt;
      g.x = dw.inputs[1];
    }
    return sum_of(g) ? std::optional(g) : std::nullopt;
  }

  // The same for codes: each gradient is quantised for both of its uses.
  std::optional<Gradients> find_scaled_gradients(const Values& grads, const Projections& p) const {
    Gradients g;
    for (size_t i = 0; i < grads.size(); ++i) {
      if (r_.readers(grads[i]).size() != 1) return std::nullopt;
      g.codes.push_back(r_.readers(grads[i])[0]);
      const Node& quantize = r_.node(g.codes[i]);
      if (!quantizes_one(quantize)) return std::nullopt;
      const graph::QuantizeResults at = graph::quantize_results(quantize.attrs);
      if (at.codes < 0 || at.transposed < 0) return std::nullopt;
      const Indices &dx_of = r_.readers(quantize.outputs[static_cast<size_t>(at.codes)]),
                    &dw_of = r_.readers(quantize.outputs[static_cast<size_t>(at.transposed)]);
      if (dx_of.size() != 1 || dw_of.size() != 1) return std::nullopt;
      g.dx.push_back(dx_of[0]);
      g.dw.push_back(dw_of[0]);
      const Node &dx = r_.node(g.dx[i]), &dw = r_.node(g.dw[i]);
      const Node &dx0 = r_.node(g.dx[0]), &dw0 = r_.node(g.dw[0]);
      if (!is_scaled_dx(dx) || dx.op != dx0.op || dx.attrs != dx0.attrs || !in_same_body(g.dx[i], g.dx[0]) ||
          quantized_weight(dx.inputs[1], g.weight_codes) != p.weights[i])
        return std::nullopt;
      if (!is_scaled_dw(dw) || dw.op != dw0.op || dw.inputs[1] != dw0.inputs[1] || dw.attrs != dw0.attrs ||
          !gradients_.contains(dw.outputs[0]) || !in_same_body(g.dw[i], g.dw[0]))
        return std::nullopt;
      g.x = dw.inputs[1];
    }
    return alike(g.codes) && alike(g.weight_codes) && sum_of(g) ? std::optional(g) : std::nullopt;
  }

  // Values that become one, and their users. Without a gradient op among the users (evaluation, or a forward
  // pass whose values are recomputed for the gradient) there are no gradients.
  struct Group {
    Values values;
    Indices uses;
    Projections projections;
    Indices ropes, ropes_back;  // for attention; empty: nothing is rotated
    std::optional<size_t> dx;
    std::optional<Gradients> gradients;
  };
  void write(const Group& g) {
    if (is_attention(r_.node(g.uses[0])))
      write_attention(g);
    else
      write_swiglu(g);
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
        if (add.op == &graph::kAdd && in_same_body(reader, g.dx[0]) && open.contains(add.inputs[0]) &&
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
  bool in_same_body(size_t a, size_t b) const {
    return r_.node(a).phase == r_.node(b).phase && r_.node(a).block == r_.node(b).block &&
           r_.node(a).row_group < 0 && r_.node(b).row_group < 0;
  }

  // Merges quantize nodes into one of all `inputs`. It measures for all of them; the sums of the others
  // stay 0.
  const Node& write_codes(const Indices& nodes, Values inputs) {
    const Values measured = r_.node(nodes[0]).outputs;
    Node& merged = merge(nodes);
    inputs.insert(inputs.end(), merged.inputs.begin() + 1, merged.inputs.end());  // the scales
    merged.inputs = std::move(inputs);
    std::vector<graph::Type> in;
    for (const ValueId v : merged.inputs) in.push_back(type(v));
    const std::vector<graph::Type> types = merged.op->infer(in, merged.attrs);
    const graph::QuantizeResults at = graph::quantize_results(merged.attrs);
    Values outputs;
    for (size_t i = 0; i < types.size(); ++i) {
      const int result = static_cast<int>(i);
      outputs.push_back(result == at.amax || result == at.rounded ? measured[i] : r_.add_value(types[i]));
    }
    merged.outputs = std::move(outputs);
    return merged;
  }
  // Codes and factors that a merged quantize node returns; without factors, the scales decode the codes.
  struct Coded {
    ValueId codes, factors;
  };
  static Coded coded(const Node& n, bool transposed) {
    const graph::QuantizeResults at = graph::quantize_results(n.attrs);
    const auto result = [&](int i) { return i < 0 ? ValueId() : n.outputs[static_cast<size_t>(i)]; };
    return {result(transposed ? at.transposed : at.codes),
            result(transposed ? at.transposed_factors : at.factors)};
  }
  static void set_operand(Node& gemm, size_t operand, const Coded& to) {
    gemm.inputs[operand] = to.codes;
    if (to.factors.valid()) gemm.inputs[2 + operand] = to.factors;
  }

  void write_projections(const Projections& p, ValueId to) {
    if (p.quantised()) {
      const Coded weights = coded(write_codes(p.codes, p.weights), false);
      Node& linear = merge(p.linears);
      set_operand(linear, 1, weights);
      linear.outputs = {to};
      return;
    }
    Node& linears = merge(p.linears);
    linears.op = &graph::kLinears;
    linears.inputs = {p.x};
    linears.inputs.insert(linears.inputs.end(), p.weights.begin(), p.weights.end());
    linears.outputs = {to};
  }

  void write_gradients(const Gradients& g, const Projections& p, ValueId from) {
    Values gradients;
    const std::string parts = parts_of(g, gradients);
    if (p.quantised()) return write_scaled_gradients(g, p, from, parts, std::move(gradients));
    Node& dx = merge(g.dx);
    dx.op = &graph::kLinearsDx;
    dx.inputs = {from};
    dx.inputs.insert(dx.inputs.end(), p.weights.begin(), p.weights.end());
    dx.outputs = {g.sum};
    for (const size_t add : g.adds) r_.remove(add);
    Node& dw = merge(g.dw);
    dw.op = &graph::kLinearsDw;
    dw.attrs.set("parts", parts);
    dw.inputs = {from, g.x};
    dw.outputs = std::move(gradients);
  }
  void write_scaled_gradients(const Gradients& g, const Projections& p, ValueId from,
                              const std::string& parts, Values gradients) {
    const Node& codes = write_codes(g.codes, {from});
    const Coded plain = coded(codes, false), transposed = coded(codes, true);
    const Coded weights = coded(write_codes(g.weight_codes, p.weights), true);
    Node& dx = merge(g.dx);
    set_operand(dx, 0, plain);
    set_operand(dx, 1, weights);
    dx.outputs = {g.sum};
    for (const size_t add : g.adds) r_.remove(add);
    Node& dw = merge(g.dw);
    dw.attrs.set("parts", parts);
    set_operand(dw, 0, transposed);
    dw.outputs = std::move(gradients);
  }
  // The gradients of the weights, and the attribute that says how they are packed.
  std::string parts_of(const Gradients& g, Values& gradients) const {
    std::string parts;
    for (const size_t i : g.dw) {
      gradients.push_back(r_.node(i).outputs[0]);
      const graph::DimSize& size = type(gradients.back()).dims[0];
      parts += fmt::format("{}{}={}", parts.empty() ? "" : " ", graph::to_string(size.name), size.size);
    }
    return parts;
  }

  static size_t last_of(const Indices& nodes) { return *std::max_element(nodes.begin(), nodes.end()); }

  // Replaces the last of several nodes by their merged form.
  Node& merge(const Indices& nodes) {
    const size_t last = last_of(nodes);
    for (const size_t i : nodes)
      if (i != last) r_.remove(i);
    return r_.node(last);
  }

  const graph::Type& type(ValueId v) const { return r_.graph().type(v); }

  // ---- Attention: q, k and v, of which q and k may be rotated in between ----

  static bool is_attention(const Node& n) {
    return n.op == &graph::kAttention || n.op == &graph::kAttentionDx || n.op == &graph::kCachedAttention;
  }
  // The operand q, which k and v follow.
  static size_t query_of(const Node& n) {
    return n.op == &graph::kAttention ? 0 : n.op == &graph::kAttentionDx ? 1 : 5;
  }
  static bool drops(const Node& n) {
    return n.attrs.find("dropout") != nullptr && n.attrs.real("dropout") > 0;
  }

  void find_attention(const Values& values, const Indices& uses, std::vector<Group>& groups) {
    const auto ropes = find_ropes(values);
    if (!is_qkv(values) || !ropes || drops(r_.node(uses[0]))) return;
    const auto projections =
        find_projections({before_rope(values[0], *ropes), before_rope(values[1], *ropes), values[2]});
    if (!projections) return;
    Group g{values, uses, *projections, *ropes, {}, {}, {}};
    bool fits = std::all_of(values.begin(), values.end(), [&](ValueId v) { return readers(v) == uses; });
    for (const size_t i : uses) {
      if (r_.node(i).op != &graph::kAttentionDx) continue;
      fits = fits && !g.dx;
      g.dx = i;
      Values grads = r_.node(i).outputs;
      const auto back = find_ropes_back(grads, !ropes->empty());
      if (!back) {
        fits = false;
        continue;
      }
      g.ropes_back = *back;
      for (size_t k = 0; k < back->size(); ++k) grads[k] = r_.node((*back)[k]).outputs[0];
      g.gradients = find_gradients(grads, *projections);
      fits = fits && g.gradients;
    }
    keep(std::move(g), fits, groups);
  }

  // Values of one layer are packed everywhere or nowhere: what is recomputed for a gradient that stays
  // separate is then the same, to the bit, as what was computed first.
  void keep(Group g, bool fits, std::vector<Group>& groups) {
    if (fits)
      groups.push_back(std::move(g));
    else
      apart_.insert(g.projections.weights);
  }

  bool is_qkv(const Values& v) const {
    const auto alike = [&](ValueId a, ValueId b) {
      return type(a).dims[0] == type(b).dims[0] && type(a).dims[2] == type(b).dims[2];
    };
    return v[1] != v[2] && alike(v[0], v[1]) && alike(v[0], v[2]);
  }

  // All rotations with the same result as the one that produced v; empty if v is not rotated.
  Indices rotations_of(ValueId v) const {
    Indices all;
    const Node* const rope = r_.producer(v);
    if (rope == nullptr || rope->op != &graph::kRope) return all;
    for (const size_t i : r_.readers(rope->inputs[0]))
      if (r_.node(i).op == &graph::kRope && r_.node(i).inputs == rope->inputs &&
          r_.node(i).attrs == rope->attrs)
        all.push_back(i);
    return all;
  }

  // The result of the first of them. Recomputing a rotation from a value that was kept does not pay off:
  // packed, the rotated values take the place of those, so they are kept instead.
  ValueId first(ValueId rotated) const {
    const Indices rotations = rotations_of(rotated);
    return rotations.empty() ? rotated : r_.node(rotations[0]).outputs[0];
  }

  // The nodes that read a value, or the equal result of a later rotation.
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
    return ropes.empty() ? v : r_.producer(v)->inputs[0];
  }

  // The rotations of q and of k, if alike and of values with no other readers; empty: neither is rotated.
  std::optional<Indices> find_ropes(const Values& values) const {
    Indices ropes;
    for (const ValueId v : {values[0], values[1]}) {
      const Indices rotations = rotations_of(v);
      if (rotations.empty()) continue;
      if (r_.readers(r_.node(rotations[0]).inputs[0]) != rotations) return std::nullopt;
      ropes.push_back(rotations[0]);
    }
    return can_merge(ropes) ? std::optional(ropes) : std::nullopt;
  }
  std::optional<Indices> find_ropes_back(const Values& grads, bool rotated) const {
    Indices ropes;
    for (size_t i = 0; rotated && i < 2; ++i) {
      if (r_.readers(grads[i]).size() != 1) return std::nullopt;
      ropes.push_back(r_.readers(grads[i])[0]);
      if (r_.node(ropes.back()).op != &graph::kRope) return std::nullopt;
    }
    return can_merge(ropes) ? std::optional(ropes) : std::nullopt;
  }
  bool can_merge(const Indices& ropes) const {
    if (ropes.empty()) return true;
    if (ropes.size() != 2) return false;
    const Node &q = r_.node(ropes[0]), &k = r_.node(ropes[1]);
    return q.attrs == k.attrs && q.inputs[1] == k.inputs[1] && in_same_body(ropes[0], ropes[1]);
  }

  void write_ropes(const Indices& ropes, ValueId from, ValueId to, int64_t heads) {
    Node& rope = merge(ropes);
    rope.op = &graph::kRopeFirst;
    rope.attrs.set("heads", heads);
    rope.inputs[0] = from;
    rope.outputs = {to};
  }

  void write_attention(const Group& g) {
    const int64_t heads = type(g.values[0]).size(1), kv_heads = type(g.values[1]).size(1);
    graph::Type packed = type(g.values[0]);
    packed.dims[1].size = heads + 2 * kv_heads;
    const ValueId made = r_.add_value(packed), rotated = g.ropes.empty() ? made : r_.add_value(packed);
    for (const ValueId v : {g.values[0], g.values[1]})
      for (const size_t i : rotations_of(v))
        if (std::find(g.ropes.begin(), g.ropes.end(), i) == g.ropes.end()) r_.remove(i);
    write_projections(g.projections, made);
    if (!g.ropes.empty()) write_ropes(g.ropes, made, rotated, heads + kv_heads);
    for (const size_t i : g.uses) {
      Node& use = r_.node(i);
      const bool is_dx = use.op == &graph::kAttentionDx;
      const auto q = use.inputs.begin() + static_cast<ptrdiff_t>(query_of(use));
      *q = rotated;
      use.inputs.erase(q + 1, q + 3);
      if (use.op != &graph::kCachedAttention)
        use.op = is_dx ? &graph::kQkvAttentionDx : &graph::kQkvAttention;
      use.attrs.set("heads", heads);
      use.attrs.set("kv_heads", kv_heads);
    }
    if (!g.dx) return;
    const ValueId grad = r_.add_value(packed), unrotated = g.ropes.empty() ? grad : r_.add_value(packed);
    r_.node(*g.dx).outputs = {grad};
    if (!g.ropes.empty()) write_ropes(g.ropes_back, grad, unrotated, heads + kv_heads);
    write_gradients(*g.gradients, g.projections, unrotated);
  }

  // ---- SwiGLU: gate and up ----

  static bool is_swiglu_gradient(const Node& n) {
    return n.op == &graph::kSwiGluDx || n.op == &graph::kSwiGluBackward;
  }

  void find_swiglu(const Values& values, const Indices& uses, std::vector<Group>& groups) {
    const auto projections = find_projections(values);
    if (!projections || type(values[0]).num_dims() != 2) return;
    Group g{values, uses, *projections, {}, {}, {}, {}};
    bool fits = std::all_of(values.begin(), values.end(), [&](ValueId v) { return r_.readers(v) == uses; });
    for (const size_t i : uses) {
      if (!is_swiglu_gradient(r_.node(i))) continue;
      fits = fits && !g.dx;
      g.dx = i;
      g.gradients = find_gradients({r_.node(i).outputs[0], r_.node(i).outputs[1]}, *projections);
      fits = fits && g.gradients;
    }
    keep(std::move(g), fits, groups);
  }

  void write_swiglu(const Group& g) {
    graph::Type packed = type(g.values[0]);
    packed.dims[1].size *= 2;
    const ValueId made = r_.add_value(packed);
    write_projections(g.projections, made);
    for (const size_t i : g.uses) {
      Values& inputs = r_.node(i).inputs;
      inputs.pop_back();
      inputs.back() = made;
    }
    if (!g.dx) return;
    const ValueId grad = r_.add_value(packed);
    Values& outputs = r_.node(*g.dx).outputs;
    outputs.erase(outputs.begin());
    outputs[0] = grad;
    write_gradients(*g.gradients, g.projections, grad);
  }

  Rewrite r_;
  std::set<ValueId> gradients_;  // of parameters, local and whole
  std::set<ValueId> shared_;     // parameters with several contributions to their gradient
  std::set<Values> apart_;       // weights of projections that stay separate
};

}  // namespace

layout::LocalGraph pack(layout::LocalGraph local) { return Pack(std::move(local)).run(); }

}  // namespace quintet::passes
