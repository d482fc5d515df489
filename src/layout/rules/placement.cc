// The ops that change placements.
#include "base/error.h"
#include "graph/words.h"
#include "layout/rules/families.h"

namespace quintet::layout::rules {

TransitionNode node_of(const Transition& t) {
  using Kind = Transition::Kind;
  const int64_t dim = t.dim, split = t.split;
  const auto [reduce, how] = graph::word(t.reduction);
  graph::Attrs attrs{{"atoms", std::vector<int64_t>(t.atoms.begin(), t.atoms.end())}};
  switch (t.kind) {
    case Kind::AllReduce:
      attrs.set(reduce, how);
      return {&graph::kAllReduce, std::move(attrs)};
    case Kind::ReduceScatter:
      attrs.set("dim", dim);
      attrs.set(reduce, how);
      return {&graph::kReduceScatter, std::move(attrs)};
    case Kind::AllGather:
      attrs.set("dim", dim);
      return {&graph::kAllGather, std::move(attrs)};
    case Kind::AllToAll:
      attrs.set("split", split);
      attrs.set("join", dim);
      return {&graph::kAllToAll, std::move(attrs)};
    case Kind::Slice:
      attrs.set("dim", dim);
      return {&graph::kSlice, std::move(attrs)};
    case Kind::ZeroUnlessFirst:
      return {&graph::kZeroUnlessFirst, std::move(attrs)};
  }
  base::fail_internal("unknown transition");
}

}  // namespace quintet::layout::rules
