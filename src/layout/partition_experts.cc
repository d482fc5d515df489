// Rows that go to the ranks of their experts and back. Every rank of the exchange group (ep x etp) sends each
// of its rows to all etp ranks that share the row's expert; they return terms of a sum, which the sender adds
// up. The rows that arrive are put together by expert. How many come is known in the step only, so buffers
// have room for the most that can come; unless experts are padded to the same rows.
#include <algorithm>

#include "base/error.h"
#include "layout/partitioner.h"

namespace quintet::layout {

using graph::Dim;
using graph::Node;
using graph::ValueId;

namespace {

graph::Type with_rows(graph::Type type, Dim name, int64_t rows) {
  type.dims[0] = {name, rows};
  return type;
}

}  // namespace

// Sizes that follow from a rank's tokens. The most rows that can reach it: every sender can send each of its
// tokens to as many experts as the rank has, but no token more often than it chooses, and no expert gets more
// than its capacity. With padding all is fixed: an expert gets from a sender what the capacities of the
// sender's groups of sequences allow, or all its tokens if fewer.
void Partitioner::plan_slots(const Node& route, graph::Attrs& attrs) {
  const graph::Type& kept = logical_.type(route.inputs[0]);
  const int64_t senders = layout_.mesh.size(layout_.experts.group());
  const int64_t all_experts = route.attrs.integer("experts");
  const int64_t experts = all_experts / layout_.mesh.size(layout_.experts.ep);
  const int64_t tokens = kept.size(0) / layout_.mesh.size(concat(layout_.data(), layout_.tensor));
  slot_rows_ = tokens * kept.size(1);
  routed_rows_ = senders * tokens * std::min(kept.size(1), experts);
  if (const graph::NodeId from = logical_.value(route.inputs[0]).producer;
      senders > 1 && from.valid() && logical_.nodes()[from.index()].op == &graph::kLimit) {
    // An expert takes its capacity from each group of sequences, and no more. (Alone, a rank's rows stay
    // where they were sorted.)
    const graph::Attrs& limit = logical_.nodes()[from.index()].attrs;
    const int64_t groups = kept.size(0) / (limit.integer("group") * limit.integer("seq_len")) /
                           layout_.mesh.size(layout_.samples);
    const int64_t places = layout_.mesh.size(intersection(layout_.experts.group(), layout_.samples));
    routed_rows_ = std::min(routed_rows_, experts * places * groups * limit.integer("capacity"));
  }
  const int64_t pad = route.attrs.integer("pad");
  pad_ = std::min(tokens, pad / layout_.mesh.size(layout_.samples));
  QUINTET_CHECK((pad_ > 0) == (pad > 0), "experts padded to {} rows over {} places of samples", pad,
                layout_.mesh.size(layout_.samples));
  if (pad_ > 0) {
    attrs.set("pad", pad_);
    slot_rows_ = all_experts * pad_;
    routed_rows_ = senders * experts * pad_;
  }
}

ValueId Partitioner::regroup(ValueId rows, ValueId received, bool inverse, const Node& like) {
  const int64_t experts = out_.graph.type(received).size(0) / layout_.mesh.size(layout_.experts.group());
  return append(graph::kRegroup, {rows, received}, {{"experts", experts}, {"inverse", int64_t{inverse}}},
                like, {out_.graph.type(rows)})
      .outputs[0];
}

bool Partitioner::partition_exchange(const Node& node) {
  const bool counts = node.op == &graph::kExchangeCounts, back = node.op == &graph::kToTokens;
  if (!counts && !back && node.op != &graph::kToExperts) return false;
  const AtomList group = layout_.experts.group();
  const int members = layout_.mesh.size(group), copies = layout_.mesh.size(layout_.experts.etp);
  const AtomList rows = concat(layout_.data(), layout_.tensor);
  const AtomList routed = concat(layout_.experts.edp, layout_.experts.ep);
  const ValueId result = node.outputs[0];

  const ValueId send = current(node.inputs[counts ? 0 : 1]);
  const int64_t experts = out_.graph.type(send).size(0) / layout_.mesh.size(layout_.experts.ep);
  graph::Attrs attrs{{"atoms", std::vector<int64_t>(group.begin(), group.end())},
                     {"experts", experts},
                     {"copies", int64_t{copies}},
                     {"back", int64_t{back}},
                     {"pad", counts ? 0 : pad_}};
  if (counts) {
    // Padded, all counts are the same: those that are sent are those that would come.
    if (pad_ > 0 && copies == 1) attrs.set("atoms", std::vector<int64_t>());
    const Node& local = append(graph::kAllToAllV, {send}, std::move(attrs), node,
                               {with_rows(out_.graph.type(send), Dim::Counts, members * experts)});
    settle(result, local.outputs[0], Placement{.dims = {routed}, .partial = {}});
    return true;
  }
  const ValueId received = current(node.inputs[2]);
  const graph::Type& value = logical_.type(node.inputs[0]);
  Placement at = replicated(value.num_dims());
  if (!back) {
    at.dims[0] = rows;
    const ValueId in = use(node.inputs[0], at, node);
    ValueId out = append(graph::kAllToAllV, {in, send, received}, std::move(attrs), node,
                         {with_rows(out_.graph.type(in), Dim::Routed, routed_rows_)})
                      .outputs[0];
    if (members > 1) out = regroup(out, received, false, node);
    at.dims[0] = routed;
    settle(result, out, at);
    return true;
  }
  // Terms of a sum over etp come back as they are and are added up by the sender.
  at.dims[0] = routed;
  at.partial = layout_.experts.etp;
  ValueId in = use(node.inputs[0], at, node);
  if (members > 1) in = regroup(in, received, true, node);
  ValueId out = append(graph::kAllToAllV, {in, send, received}, std::move(attrs), node,
                       {with_rows(out_.graph.type(in), Dim::Slots, slot_rows_ * copies)})
                    .outputs[0];
  if (copies > 1)
    out = append(graph::kSumCopies, {out}, {{"copies", int64_t{copies}}}, node,
                 {with_rows(out_.graph.type(in), Dim::Slots, slot_rows_)})
              .outputs[0];
  at.partial = {};
  at.dims[0] = rows;
  settle(result, out, at);
  return true;
}

}  // namespace quintet::layout
