// Exchange of rows with the ranks of their experts. Every rank of the exchange group (ep x etp) sends each
// of its rows to all etp ranks that share the row's expert; they return terms of a sum, which the sender adds
// up. Rows that arrive are grouped by expert. Their number is known only within the step, so buffers are
// sized by the bound that `route` set, unless experts are padded to the same number of rows. Where more rows
// than the bound can arrive, what is exchanged here is the first pass of them.
#include "base/error.h"
#include "layout/rules/families.h"

namespace quintet::layout::rules {

using graph::Attrs;
using graph::Dim;
using graph::Node;
using graph::ValueId;

namespace {

graph::Type with_rows(graph::Type type, Dim name, int64_t rows) {
  type.dims[0] = {name, rows};
  return type;
}

// One exchange: the participating ranks, what a rank sends, and the rows' placement on either side.
struct Exchange {
  const AtomList group, slots, routed;
  const int members;
  const int64_t copies;
  const ValueId send;     // local: rows for each expert
  const int64_t experts;  // on this rank
  const int64_t pad;      // rows sent by this rank to each expert; 0: as many as choose it

  Exchange(const RuleContext& c, ValueId send_counts)
      : group(c.layout().experts.group()),
        slots(concat(c.layout().data(), c.layout().tensor)),
        routed(concat(c.layout().experts.edp, c.layout().experts.ep)),
        members(c.parts(group)),
        copies(c.parts(c.layout().experts.etp)),
        send(c.current(send_counts)),
        experts(c.local().type(send).size(0) / c.parts(c.layout().experts.ep)),
        pad(pad_of(c, send)) {}

  static const Node& route_of(const RuleContext& c, ValueId send) {
    const graph::NodeId producer = c.local().value(send).producer;
    QUINTET_CHECK(producer.valid() && c.local().nodes()[producer.index()].op == &graph::kRoute,
                  "counts of rows for experts do not come from [route]");
    return c.local().nodes()[producer.index()];
  }
  static int64_t pad_of(const RuleContext& c, ValueId send) {
    const graph::NodeId producer = c.local().value(send).producer;
    if (producer.valid() && c.local().nodes()[producer.index()].op == &graph::kSplitRows) return 0;
    return route_of(c, send).attrs.integer("pad");
  }

  Attrs attrs(bool back, int64_t padded) const {
    return {{"atoms", std::vector<int64_t>(group.begin(), group.end())},
            {"experts", experts},
            {"copies", copies},
            {"back", int64_t{back}},
            {"pad", padded}};
  }
};

ValueId regroup(RuleContext& c, ValueId rows, ValueId received, bool inverse, const Node& like) {
  const int64_t experts = c.local().type(received).size(0) / c.parts(c.layout().experts.group());
  return c
      .emit(graph::kRegroup, {rows, received}, {{"experts", experts}, {"inverse", int64_t{inverse}}}, like,
            {c.local().type(rows)})
      .outputs[0];
}

// With fewer rows planned than can arrive: every member gets the counts of all, and order and counts become
// those of the first pass.
void first_pass(RuleContext& c, const Node& node, const Exchange& e) {
  const Node& route = c.logical().nodes()[c.logical().value(node.inputs[0]).producer.index()];
  const ValueId order = c.current(route.outputs[0]);
  const Placement order_at = c.placement(order), send_at = c.placement(e.send);
  const int64_t all = c.local().type(e.send).size(0);
  const graph::Type counts = with_rows(c.local().type(e.send), Dim::Counts, e.members * all);
  const ValueId gathered =
      c.emit(graph::kAllGather, {e.send},
             {{"atoms", std::vector<int64_t>(e.group.begin(), e.group.end())}, {"dim", int64_t{0}}}, node,
             {counts})
          .outputs[0];
  c.note(gathered, node.inputs[0], Placement{.dims = {{}}, .partial = {}});
  const std::vector<ValueId> pass =
      c.emit(graph::kSplitRows, {order, gathered},
             {{"rows", c.bound(Dim::Routed)},
              {"experts", e.experts},
              {"all_experts", all},
              {"copies", e.copies}},
             node,
             {c.local().type(order), c.local().type(e.send),
              with_rows(counts, Dim::Counts, e.members * e.experts), with_rows(counts, Dim::Counts, 1)})
          .outputs;
  c.set_divisions({{.key = Dim::Counts, .atoms = e.group, .global = e.members, .local = 1}});
  c.settle(route.outputs[0], pass[0], order_at);
  c.settle(route.outputs[1], pass[1], send_at);
  c.settle(node.outputs[0], pass[2], Placement{.dims = {e.routed}, .partial = {}});
  c.note(pass[3], node.outputs[0], Placement{.dims = {{}}, .partial = {}});
}

}  // namespace

void exchange_counts(RuleContext& c, const Node& node) {
  const Exchange e(c, node.inputs[0]);
  if (Exchange::route_of(c, e.send).attrs.find("bound")) return first_pass(c, node, e);
  Attrs attrs = e.attrs(false, 0);
  // Padded, all counts are equal: the counts sent are those that would arrive.
  if (e.pad > 0 && e.copies == 1) attrs.set("atoms", std::vector<int64_t>());
  const Node& local = c.emit(graph::kAllToAllV, {e.send}, std::move(attrs), node,
                             {with_rows(c.local().type(e.send), Dim::Counts, e.members * e.experts)});
  c.settle(node.outputs[0], local.outputs[0], Placement{.dims = {e.routed}, .partial = {}});
}

void to_experts(RuleContext& c, const Node& node) {
  const Exchange e(c, node.inputs[1]);
  const ValueId received = c.current(node.inputs[2]);
  Placement at = replicated(c.logical().type(node.inputs[0]).num_dims());
  at.dims[0] = e.slots;
  const ValueId in = c.use(node.inputs[0], at, node);
  ValueId out = c.emit(graph::kAllToAllV, {in, e.send, received}, e.attrs(false, e.pad), node,
                       {with_rows(c.local().type(in), Dim::Routed, c.bound(Dim::Routed))})
                    .outputs[0];
  if (e.members > 1) out = regroup(c, out, received, false, node);
  at.dims[0] = e.routed;
  c.settle(node.outputs[0], out, at);
}

// Terms of a sum over etp are returned unreduced and added up by the sender.
void to_tokens(RuleContext& c, const Node& node) {
  const Exchange e(c, node.inputs[1]);
  const ValueId received = c.current(node.inputs[2]);
  Placement at = replicated(c.logical().type(node.inputs[0]).num_dims());
  at.dims[0] = e.routed;
  at.partial = c.layout().experts.etp;
  ValueId in = c.use(node.inputs[0], at, node);
  if (e.members > 1) in = regroup(c, in, received, true, node);
  const int64_t slots = c.bound(Dim::Slots);
  ValueId out = c.emit(graph::kAllToAllV, {in, e.send, received}, e.attrs(true, e.pad), node,
                       {with_rows(c.local().type(in), Dim::Slots, slots * e.copies)})
                    .outputs[0];
  if (e.copies > 1)
    out = c.emit(graph::kSumCopies, {out}, {{"copies", e.copies}}, node,
                 {with_rows(c.local().type(in), Dim::Slots, slots)})
              .outputs[0];
  at.partial = {};
  at.dims[0] = e.slots;
  c.settle(node.outputs[0], out, at);
}

// The number of experts on a rank cannot be derived from rows.
void grouped_linear_dw(RuleContext& c, const Node& node) {
  const Divided d = c.divide(node);
  Attrs attrs = node.attrs;
  attrs.set("experts", c.local_of(d.out[0], c.placement_of(d, 0, Side::Output)).size(0));
  c.emit_by_dims(d, std::move(attrs));
}

}  // namespace quintet::layout::rules
