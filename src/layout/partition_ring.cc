// Ring attention: instead of being gathered, K and V travel from rank to rank. At hop h a rank holds the rows
// of the rank h places before it; each hop's result is merged into what the earlier ones gave, and the next
// rows are on their way while this hop computes. In the backward pass the gradients of K and V travel one hop
// behind: a rank adds its term to what arrived while it computed the term. One more hop takes them home.
#include "base/error.h"
#include "layout/partitioner.h"

namespace quintet::layout {

using graph::Node;
using graph::ValueId;

namespace {

graph::Type with_dtype(graph::Type type, graph::DType dtype) {
  type.dtype = dtype;
  return type;
}

graph::Attrs at_hop(const Node& node, int hop) {
  graph::Attrs attrs = node.attrs;
  attrs.set("hop", int64_t{hop});
  return attrs;
}

}  // namespace

// As the op's rule says, but K and V and their gradients stay divided by the ring's atoms: the sum over the
// ring is made on the way.
Placement Partitioner::ring_placement(const Divided& d, size_t operand, bool output) const {
  Placement p = placement_of(d, operand, output);
  const AtomList& ring = layout_.context.rows;
  p.partial = without(p.partial, ring);
  if (intersection(p.dims[0], ring).empty()) p.dims[0] = concat(p.dims[0], ring);
  return p;
}

ValueId Partitioner::shift(ValueId value, const Node& like) {
  const AtomList& ring = layout_.context.rows;
  const Node& node =
      append(graph::kRingShift, {value}, {{"atoms", std::vector<int64_t>(ring.begin(), ring.end())}}, like,
             {out_.graph.type(value)});
  const ValueId moved = node.outputs[0];
  note(moved, out_.origin[value.index()], Placement(placement(value)));
  return moved;
}

// Running sums are kept in the wider dtype; what others read is in that of the model.
ValueId Partitioner::settled(ValueId value, graph::DType dtype, const Node& like) {
  const graph::Type wide = out_.graph.type(value);
  if (wide.dtype == dtype) return value;
  return append(graph::kCast, {value}, {{"out", std::string(base::to_string(dtype))}}, like,
                {with_dtype(wide, dtype)})
      .outputs[0];
}

void Partitioner::partition_ring(const Divided& d) {
  const Node& node = d.node;
  const int hops = layout_.mesh.size(layout_.context.rows);
  const graph::DType dtype = d.out[0].dtype, wide = base::accumulator_of(dtype);
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < node.inputs.size(); ++i)
    inputs.push_back(use(node.inputs[i],
                         i == 1 || i == 2 ? ring_placement(d, i, false) : placement_of(d, i, false), node));
  const Placement o_at = placement_of(d, 0, true), lse_at = placement_of(d, 1, true);
  const graph::Type o_type = with_dtype(local_of(d.out[0], o_at), wide),
                    lse_type = local_of(d.out[1], lse_at);

  ValueId o, lse;
  for (int hop = 0; hop < hops; ++hop) {
    ValueId next_k, next_v;
    if (hop + 1 < hops) next_k = shift(inputs[1], node), next_v = shift(inputs[2], node);
    std::vector<ValueId> in = inputs;
    if (hop > 0) in.insert(in.end(), {o, lse});
    const Node& local = append(d, graph::kAttentionHop, std::move(in), at_hop(node, hop), {o_type, lse_type});
    o = local.outputs[0], lse = local.outputs[1];
    note(o, node.outputs[0], o_at);
    note(lse, node.outputs[1], lse_at);
    inputs[1] = next_k, inputs[2] = next_v;
  }
  settle(node.outputs[0], settled(o, dtype, node), o_at);
  settle(node.outputs[1], lse, lse_at);
}

void Partitioner::partition_ring_backward(const Divided& d) {
  const Node& node = d.node;  // do, q, k, v, o, lse, ... -> dq, dk, dv
  const int hops = layout_.mesh.size(layout_.context.rows);
  const graph::DType dtype = d.out[0].dtype;
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < node.inputs.size(); ++i)
    inputs.push_back(use(node.inputs[i],
                         i == 2 || i == 3 ? ring_placement(d, i, false) : placement_of(d, i, false), node));
  const Placement dq_at = placement_of(d, 0, true);
  const Placement dk_at = ring_placement(d, 1, true), dv_at = ring_placement(d, 2, true);
  const std::vector<graph::Type> types = {with_dtype(local_of(d.out[0], dq_at), base::accumulator_of(dtype)),
                                          local_of(d.out[1], dk_at), local_of(d.out[2], dv_at)};

  ValueId dq, dk, dv;
  for (int hop = 0; hop < hops; ++hop) {
    ValueId next_k, next_v;
    if (hop + 1 < hops) next_k = shift(inputs[2], node), next_v = shift(inputs[3], node);
    std::vector<ValueId> in = inputs;
    if (hop > 0) in.push_back(dq);
    const std::vector<ValueId> out =
        append(d, graph::kAttentionHopDx, std::move(in), at_hop(node, hop), types).outputs;
    note(out[0], node.outputs[0], dq_at);
    note(out[1], node.outputs[1], dk_at);
    note(out[2], node.outputs[2], dv_at);
    dq = out[0];
    // What the ranks before have gathered arrives while this hop computes, and is added to afterwards.
    const auto with_term = [&](ValueId before, ValueId term, const Placement& at, size_t result) {
      if (!before.valid()) return term;
      const ValueId sum = append(graph::kAdd, {before, term}, {}, node, {out_.graph.type(term)}).outputs[0];
      note(sum, node.outputs[result], at);
      return sum;
    };
    dk = with_term(dk, out[1], dk_at, 1), dv = with_term(dv, out[2], dv_at, 2);
    dk = shift(dk, node), dv = shift(dv, node);  // after the last hop: home
    inputs[2] = next_k, inputs[3] = next_v;
  }
  settle(node.outputs[0], settled(dq, dtype, node), dq_at);
  settle(node.outputs[1], dk, dk_at);
  settle(node.outputs[2], dv, dv_at);
}

}  // namespace quintet::layout
