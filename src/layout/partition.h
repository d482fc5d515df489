// The partitioner: logical graph x layout -> the local graph of a rank. It walks the nodes once, forward and
// backward alike, and calls each op's rule (layout/rule.h). The op's dims say along which named dims the work
// may be sharded, the layout says by which atoms, and wherever an operand's placement is not the one that the
// op needs, the transition between them is inserted.
//
// Two rules keep memory and traffic down:
//  - Partial values stay partial through `add` only, so several partial terms share one reduction; terms that
//    are sharded alike are added before they are gathered.
//  - A gathered copy is used within one pass only: what is kept from forward to backward is the value before
//    the gather.
#pragma once

#include "graph/step_graph.h"
#include "layout/layout.h"

namespace quintet::layout {

// A sharded dim of an op, for kernels that must know which part they hold (vocabulary rows, dropout
// features).
struct Division {
  graph::Dim key;
  AtomList atoms;
  int64_t global = 0,
          local = 0;  // sizes; the part of group index i begins at i * local and may end in padding
};

struct LocalGraph {
  graph::Graph graph;                            // local sizes; the structure is the same on all ranks
  std::vector<Placement> placements;             // by local ValueId
  std::vector<std::vector<Division>> divisions;  // by local NodeId
  std::vector<graph::ValueId> origin;            // by local ValueId: the logical value it is (a piece of)
  // For sums of stored values, by local NodeId and operand: atoms over which ranks hold the same elements,
  // of which only the first rank counts them.
  std::vector<std::vector<AtomList>> once;
};

class RuleContext;  // layout/rule.h
using Rule = void (*)(RuleContext& context, const graph::Node& node);
struct OpRule {
  const graph::OpDef* op;
  Rule rule;
};

// `extra` are the rules of ops defined outside room graph; every other op without a built-in rule is sharded
// by its dims.
LocalGraph partition(const graph::Graph& logical, const Layout& layout,
                     const std::vector<OpRule>& extra = {});

// The step's graph: states have their storage placement. `train` is the partitioned model, whose step sums
// the step continues.
LocalGraph partition_step(const graph::StepGraph& step, const LocalGraph& train, const Layout& layout,
                          const std::vector<OpRule>& extra = {});

}  // namespace quintet::layout
