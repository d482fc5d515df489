// Sharding rule of quantize: by dims. Of its results without dims the largest magnitude is a maximum over
// shards, the counts are sums.
//
// In a row group all ops have the same token rows: the head's input is gathered before it is quantised there.
#include "graph/fp8_ops.h"
#include "layout/rules/families.h"

namespace quintet::layout::rules {

void quantize(RuleContext& c, const graph::Node& node) {
  Divided d = c.divide(node);
  for (size_t i = 0; i < d.directions.size(); ++i)
    if (node.row_group >= 0 && d.directions[i].key == graph::Dim::Tokens)
      d.atoms[i] = without(d.atoms[i], c.layout().sequence);
  c.emit_by_dims(d, node.attrs);
  const int rounded = graph::quantize_results(node.attrs).rounded;
  if (rounded < 0) return;
  const graph::ValueId logical = node.outputs[static_cast<size_t>(rounded)], local = c.current(logical);
  Placement counts = c.placement(local);
  counts.reduction = graph::Reduction::Sum;
  c.settle(logical, local, std::move(counts));
}

}  // namespace quintet::layout::rules
