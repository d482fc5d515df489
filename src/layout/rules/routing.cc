// Routing: ops that depend on several rows of a sequence, and the sizes of what is sent to experts.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "layout/rules/families.h"

namespace quintet::layout::rules {

using graph::Attrs;
using graph::Dim;
using graph::Node;

namespace {

// Adds a rank's number of token rows, which these ops cannot derive from their operands.
Attrs with_local_token_rows(const RuleContext& c, const Divided& d) {
  Attrs attrs = d.node.attrs;
  for (size_t i = 0; i < d.directions.size(); ++i)
    if (d.directions[i].key == Dim::Tokens)
      attrs.set("token_rows", attrs.integer("token_rows") / c.parts(d.atoms[i]));
  return attrs;
}

}  // namespace

// Rows of sequences that are split over context ranks are stored in a special order (base/row_order.h).
void with_row_order(RuleContext& c, const Node& node) {
  Attrs attrs = node.attrs;
  attrs.set("cp", int64_t{c.layout().context.ranks});
  c.emit_by_dims(c.divide(node), std::move(attrs));
}

void with_token_rows(RuleContext& c, const Node& node) {
  const Divided d = c.divide(node);
  c.emit_by_dims(d, with_local_token_rows(c, d));
}

// Bounds that follow from a rank's tokens. The most rows that can reach it: every sender can send each of its
// tokens to as many experts as the rank has, but no token more often than it chooses, and no expert gets more
// than its capacity. With padding the number is fixed: an expert gets from a sender as many rows as the
// capacities of the sender's groups of sequences allow, or all its tokens if fewer. Without, `bound` times
// the mean may be planned instead of the most; the attribute stays only where that is less.
void route(RuleContext& c, const Node& node) {
  const Layout& layout = c.layout();
  const Divided d = c.divide(node);
  Attrs attrs = with_local_token_rows(c, d);
  const graph::Type& kept = d.in[0];
  const int64_t senders = c.parts(layout.experts.group());
  const int64_t all_experts = attrs.integer("experts");
  const int64_t experts = all_experts / c.parts(layout.experts.ep);
  const int64_t tokens = kept.size(0) / c.parts(concat(layout.data(), layout.tensor));
  int64_t slots = tokens * kept.size(1);
  int64_t routed = senders * tokens * std::min(kept.size(1), experts);
  const graph::NodeId from = c.logical().value(node.inputs[0]).producer;
  if (senders > 1 && from.valid() && c.logical().nodes()[from.index()].op == &graph::kLimit) {
    // An expert takes at most its capacity from each group of sequences. (A single rank's rows stay where
    // they were sorted.)
    const Attrs& limit = c.logical().nodes()[from.index()].attrs;
    const int64_t groups =
        kept.size(0) / (limit.integer("group") * limit.integer("seq_len")) / c.parts(layout.samples);
    const int64_t places = c.parts(intersection(layout.experts.group(), layout.samples));
    routed = std::min(routed, experts * places * groups * limit.integer("capacity"));
  }
  if (const int64_t pad = attrs.integer("pad"); pad > 0) {
    const int64_t here = std::min(tokens, pad / c.parts(layout.samples));
    QUINTET_CHECK(here > 0, "{} padded rows per expert cannot be split over {} sample ranks", pad,
                  c.parts(layout.samples));
    attrs.set("pad", here);
    slots = all_experts * here;
    routed = senders * experts * here;
  }
  const graph::AttrValue* const bound = attrs.find("bound");
  if (bound != nullptr) {
    const double mean = static_cast<double>(c.parts(layout.experts.etp) * slots);
    const auto rows = std::max<int64_t>(1, std::llround(std::ceil(std::get<double>(*bound) * mean)));
    if (senders > 1 && attrs.integer("pad") == 0 && rows < routed)
      routed = rows;
    else
      attrs.erase("bound");
  }
  c.set_bound(Dim::Slots, slots);
  c.set_bound(Dim::Routed, routed);
  c.emit_by_dims(d, std::move(attrs));
}

}  // namespace quintet::layout::rules
