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
  int64_t block = 1;  // of graph::StateDecl
};

// A matrix that its owner makes orthogonal whole, while ranks hold pieces of it.
struct OwnedMatrix {
  int group = 0;                  // which of the window's
  int64_t offset = 0;             // of this rank's rows and columns in the whole flat group
  int64_t rows = 0, columns = 0;  // of the whole matrix
  AtomList row_atoms, column_atoms;
  double scale = 1;
  int64_t rates = 0;  // row of learning rate and weight decay: see program/flat_ranges.h
  int owner = 0;      // position in the window's atoms
  int slot = 0;       // among its owner's matrices of this shape
};

// Matrices that are exchanged together. Positions count through `copies`, whose ranks hold the same pieces,
// and then `pieces`, whose ranks hold different ones.
struct MatrixWindow {
  AtomList copies, pieces;
  graph::DType dtype = graph::DType::F32;  // of Newton-Schulz and of what is exchanged
  std::vector<int> groups;
  std::vector<OwnedMatrix> matrices;
  int block = 0;  // the first
};

struct FlatStep {
  // The attribute "ranges" of its nodes is in the coordinates of whole groups.
  graph::Graph graph;
  std::vector<FlatValue> values;            // by ValueId
  std::vector<std::vector<AtomList>> once;  // by node, by row of "ranges" or by operand: see LocalGraph::once
  std::vector<MatrixWindow> windows;        // of the node [muon]
};

}  // namespace quintet::layout
