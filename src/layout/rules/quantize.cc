// Sharding rules of quantize and quantize_blocks: by dims. Of the results of quantize without dims the
// largest magnitude is a maximum over shards, the counts are sums. Shards of quantize_blocks hold whole
// blocks, so that every layout has the same.
//
// In a row group all ops have the same token rows: the head's input is gathered before it is quantised there.
#include "base/error.h"
#include "graph/fp8_ops.h"
#include "layout/rules/families.h"

namespace quintet::layout::rules {

namespace {

Divided divide(const RuleContext& c, const graph::Node& node) {
  Divided d = c.divide(node);
  for (size_t i = 0; i < d.directions.size(); ++i)
    if (node.row_group >= 0 && d.directions[i].key == graph::Dim::Tokens)
      d.atoms[i] = without(d.atoms[i], c.layout().sequence);
  return d;
}

// Of the dims [first, end), which are blocked together, at most the first may be sharded, between blocks.
void require_whole_blocks(const RuleContext& c, const Divided& d, size_t first, size_t end) {
  const int64_t block = d.node.attrs.integer("block");
  int64_t inner = 1;
  for (size_t i = first + 1; i < end; ++i) {
    QUINTET_CHECK(c.parts(d.atoms[i]) == 1, "[{}] {} is sharded inside of blocks", d.node.op->name,
                  graph::to_string(d.directions[i].key));
    inner *= d.in[0].dims[i].size;
  }
  const graph::DimSize& size = d.in[0].dims[first];
  const int parts = c.parts(d.atoms[first]);
  const int64_t local = shard_size(size.size, parts) * inner;
  if (local % block == 0 && shard_size(size.size * inner / block, parts) == local / block) return;
  base::fail_user(
      "precision.linear: in block {} {} values along {} over {} = {} ranks are {} per rank, and a rank must "
      "hold whole blocks of {}; use fewer tensor or context ranks, or leave the layer out of "
      "precision.fp8_match",
      d.node.block, size.size * inner, graph::to_string(size.name), c.layout().mesh.name(d.atoms[first]),
      parts, local, block);
}

}  // namespace

void quantize(RuleContext& c, const graph::Node& node) {
  c.emit_by_dims(divide(c, node), node.attrs);
  const int rounded = graph::quantize_results(node.attrs).rounded;
  if (rounded < 0) return;
  const graph::ValueId logical = node.outputs[static_cast<size_t>(rounded)], local = c.current(logical);
  Placement counts = c.placement(local);
  counts.reduction = graph::Reduction::Sum;
  c.settle(logical, local, std::move(counts));
}

void quantize_blocks(RuleContext& c, const graph::Node& node) {
  const Divided d = divide(c, node);
  const auto rows = static_cast<size_t>(node.attrs.integer("rows"));
  const bool square = node.attrs.integer("square") != 0;
  if (square || node.attrs.integer("transposed") != 0) require_whole_blocks(c, d, 0, rows);
  if (square || node.attrs.integer("plain") != 0) require_whole_blocks(c, d, rows, d.in[0].dims.size());
  c.emit_by_dims(d, node.attrs);
}

}  // namespace quintet::layout::rules
