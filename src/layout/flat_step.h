// The step after passes/flatten: nodes over whole parameter groups, as the program executes them.
#pragma once

#include "graph/step_graph.h"
#include "layout/groups.h"

namespace quintet::layout {

// A value of the flat graph that is a state of all parameters of a group.
struct FlatValue {
  int group = -1;  // -1: a scalar, a step sum or a state that every rank has whole
  graph::Role role = graph::Role::Moment;
  std::string slot;  // of graph::StateDecl
  graph::DType dtype = graph::DType::F32;
};

struct FlatStep {
  // The attribute "ranges" of its nodes is in the coordinates of whole groups.
  graph::Graph graph;
  std::vector<FlatValue> values;            // by ValueId
  std::vector<std::vector<AtomList>> once;  // by node, by row of "ranges" or by operand: see LocalGraph::once
};

}  // namespace quintet::layout
