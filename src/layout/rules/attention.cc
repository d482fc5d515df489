// Attention needs whole sequences. Where context parallelism splits them, K and V are gathered or rows are
// exchanged for heads (both follow from the op's dims), or K and V are sent from rank to rank: ring
// attention.
//
// Ring attention: at hop h a rank holds the K and V rows of the rank h positions before it. Each hop's result
// is merged into that of the earlier hops, and the next rows are in flight while a hop computes. In the
// backward pass the gradients of K and V follow one hop later: a rank adds its term to the sum that arrived
// while it computed the term. One more hop returns them to their owner.
#include "base/error.h"
#include "layout/rules/families.h"

namespace quintet::layout::rules {

using graph::Attrs;
using graph::Node;
using graph::ValueId;

namespace {

graph::Type with_dtype(graph::Type type, graph::DType dtype) {
  type.dtype = dtype;
  return type;
}

// Rows of split sequences are stored in a special order (base/row_order.h), which kernels must know.
Attrs row_order_attrs(const RuleContext& c, const Node& node) {
  Attrs attrs = node.attrs;
  attrs.set("cp", int64_t{c.layout().context.ranks});
  attrs.set("ulysses", int64_t{c.parts(c.context_of(node).heads)});
  return attrs;
}

class Ring {
 public:
  Ring(RuleContext& context, const Divided& d)
      : c_(context), d_(d), ring_(context.context_of(d.node).rows), hops_(context.parts(ring_)) {}

  void forward();
  void backward();

 private:
  // By the op's dims, except that K and V and their gradients stay sharded by the ring's atoms: the sum over
  // the ring is computed along the way.
  Placement on_ring(size_t operand, Side side) const {
    Placement p = c_.placement_of(d_, operand, side);
    p.partial = without(p.partial, ring_);
    if (intersection(p.dims[0], ring_).empty()) p.dims[0] = concat(p.dims[0], ring_);
    return p;
  }

  // The inputs; K and V are operands `k` and k + 1.
  std::vector<ValueId> inputs(size_t k) {
    std::vector<ValueId> list;
    for (size_t i = 0; i < d_.node.inputs.size(); ++i)
      list.push_back(c_.use(
          d_.node.inputs[i],
          i == k || i == k + 1 ? on_ring(i, Side::Input) : c_.placement_of(d_, i, Side::Input), d_.node));
    return list;
  }

  Attrs at_hop(int hop) const {
    Attrs attrs = row_order_attrs(c_, d_.node);
    attrs.set("hop", int64_t{hop});
    return attrs;
  }

  ValueId shift(ValueId value) {
    const Node& node =
        c_.emit(graph::kRingShift, {value}, {{"atoms", std::vector<int64_t>(ring_.begin(), ring_.end())}},
                d_.node, {c_.local().type(value)});
    const ValueId moved = node.outputs[0];
    c_.note(moved, c_.origin(value), Placement(c_.placement(value)));
    return moved;
  }

  // Running sums are kept in the wider dtype; final results are in the model's.
  ValueId narrowed(ValueId value, graph::DType dtype) {
    const graph::Type wide = c_.local().type(value);
    if (wide.dtype == dtype) return value;
    return c_
        .emit(graph::kCast, {value}, {{"out", std::string(base::to_string(dtype))}}, d_.node,
              {with_dtype(wide, dtype)})
        .outputs[0];
  }

  RuleContext& c_;
  const Divided& d_;
  const AtomList& ring_;
  const int hops_;
};

void Ring::forward() {  // q, k, v, ... -> o, lse
  const Node& node = d_.node;
  const graph::DType dtype = d_.out[0].dtype;
  std::vector<ValueId> operands = inputs(1);
  const Placement o_at = c_.placement_of(d_, 0, Side::Output), lse_at = c_.placement_of(d_, 1, Side::Output);
  const std::vector<graph::Type> types = {
      with_dtype(c_.local_of(d_.out[0], o_at), base::accumulator_of(dtype)), c_.local_of(d_.out[1], lse_at)};
  ValueId o, lse;
  for (int hop = 0; hop < hops_; ++hop) {
    ValueId next_k, next_v;
    if (hop + 1 < hops_) next_k = shift(operands[1]), next_v = shift(operands[2]);
    std::vector<ValueId> in = operands;
    if (hop > 0) in.insert(in.end(), {o, lse});
    const Node& local = c_.emit(d_, graph::kAttentionHop, std::move(in), at_hop(hop), types);
    o = local.outputs[0], lse = local.outputs[1];
    c_.note(o, node.outputs[0], o_at);
    c_.note(lse, node.outputs[1], lse_at);
    operands[1] = next_k, operands[2] = next_v;
  }
  c_.settle(node.outputs[0], narrowed(o, dtype), o_at);
  c_.settle(node.outputs[1], lse, lse_at);
}

void Ring::backward() {  // do, q, k, v, o, lse, ... -> dq, dk, dv
  const Node& node = d_.node;
  const graph::DType dtype = d_.out[0].dtype;
  std::vector<ValueId> operands = inputs(2);
  const Placement dq_at = c_.placement_of(d_, 0, Side::Output);
  const Placement dk_at = on_ring(1, Side::Output), dv_at = on_ring(2, Side::Output);
  const std::vector<graph::Type> types = {
      with_dtype(c_.local_of(d_.out[0], dq_at), base::accumulator_of(dtype)), c_.local_of(d_.out[1], dk_at),
      c_.local_of(d_.out[2], dv_at)};
  ValueId dq, dk, dv;
  for (int hop = 0; hop < hops_; ++hop) {
    ValueId next_k, next_v;
    if (hop + 1 < hops_) next_k = shift(operands[2]), next_v = shift(operands[3]);
    std::vector<ValueId> in = operands;
    if (hop > 0) in.push_back(dq);
    const std::vector<ValueId> out =
        c_.emit(d_, graph::kAttentionHopDx, std::move(in), at_hop(hop), types).outputs;
    c_.note(out[0], node.outputs[0], dq_at);
    c_.note(out[1], node.outputs[1], dk_at);
    c_.note(out[2], node.outputs[2], dv_at);
    dq = out[0];
    // The sum of the previous ranks arrives while this hop computes, and this rank's term is added to it.
    const auto with_term = [&](ValueId before, ValueId term, const Placement& at, size_t result) {
      if (!before.valid()) return term;
      const ValueId sum = c_.emit(graph::kAdd, {before, term}, {}, node, {c_.local().type(term)}).outputs[0];
      c_.note(sum, node.outputs[result], at);
      return sum;
    };
    dk = with_term(dk, out[1], dk_at, 1), dv = with_term(dv, out[2], dv_at, 2);
    dk = shift(dk), dv = shift(dv);  // after the last hop: back to their owner
    operands[2] = next_k, operands[3] = next_v;
  }
  c_.settle(node.outputs[0], narrowed(dq, dtype), dq_at);
  c_.settle(node.outputs[1], dk, dk_at);
  c_.settle(node.outputs[2], dv, dv_at);
}

}  // namespace

void attention(RuleContext& c, const Node& node) {
  const Divided d = c.divide(node);
  if (c.context_of(node).ring) return Ring(c, d).forward();
  c.emit_by_dims(d, row_order_attrs(c, node));
}

void attention_dx(RuleContext& c, const Node& node) {
  const Divided d = c.divide(node);
  if (c.context_of(node).ring) return Ring(c, d).backward();
  c.emit_by_dims(d, row_order_attrs(c, node));
}

}  // namespace quintet::layout::rules
