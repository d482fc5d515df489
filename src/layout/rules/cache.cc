// Text generation: every rank samples from whole rows of logits, so that all of them choose the same token.
#include "graph/cache_ops.h"
#include "layout/rules/families.h"

namespace quintet::layout::rules {

using graph::Node;
using graph::ValueId;

// The shards of the vocabulary are gathered with their padding, which follows the last token: the op knows
// how many tokens there are.
void sample(RuleContext& c, const Node& node) {
  const ValueId logits = c.current(node.inputs[0]);
  if (const AtomList atoms = c.placement(logits).dims[1]; !atoms.empty()) {
    graph::Type whole = c.local().type(logits);
    whole.dims[1].size *= c.parts(atoms);
    const Node& gathered = c.emit(
        graph::kAllGather, {logits},
        {{"atoms", std::vector<int64_t>(atoms.begin(), atoms.end())}, {"dim", int64_t{1}}}, node, {whole});
    c.settle(node.inputs[0], gathered.outputs[0], replicated(2));
  }
  c.emit_by_dims(c.divide(node), node.attrs);
}

}  // namespace quintet::layout::rules
