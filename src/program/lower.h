// Lowering: local graphs and parameter groups -> the bodies of a rank's step program. Here the storage of
// parameters (ZeRO), when they are gathered and their gradients reduced, and the optimizer step become
// instructions like any other.
#pragma once

#include <functional>
#include <string>

#include "layout/flat_step.h"
#include "layout/partition.h"
#include "layout/stages.h"
#include "program/program.h"
#include "schedule/schedule.h"

namespace quintet::program {

struct LowerOptions {
  RankId rank;
  int accumulation = 1;
  graph::DType compute, reduce, grad;
  bool fuse_adds = true;  // an op adds the other term of a sum to its result (graph/fuse_adds.h)
  // Scratch that the backend's kernel needs for an instruction; decided by the backend, planned here.
  std::function<int64_t(const Instr&)> workspace_bytes;
};

// A step of another number of micro-batches (StepVariant).
struct VariantOptions {
  int accumulation = 1;
  bool measures = false;
  const schedule::Schedule* schedule = nullptr;  // null: no pipeline
};

// The graphs of a run, all partitioned with the same layout. `groups` were made from `train`.
struct Graphs {
  const layout::LocalGraph* train = nullptr;
  const layout::LocalGraph* evaluate = nullptr;  // may be null
  const layout::LocalGraph* infer = nullptr;     // instead of train: forward only, returns logits
  // Instead of either: forward only, each with a body of its own over the same parameters and caches. What is
  // live in one shares its memory with the others. They are Program::variants, in this order.
  std::vector<const layout::LocalGraph*> entries = {};
  const std::vector<layout::Group>* groups = nullptr;
  // Every state of the model: those of the step with train, else weights alone.
  const std::vector<graph::StateDecl>* states = nullptr;
  const layout::FlatStep* step = nullptr;  // with train: runs after its last micro-batch
  const layout::Stages* stages = nullptr;
  // The pipeline's schedule; null: no pipeline, micro-batches one after another.
  const schedule::Schedule* schedule = nullptr;
  std::vector<VariantOptions> variants = {};  // with train
};

// Buffers have no offsets yet and nothing is freed: see lifetimes.h and allocate.h.
Program lower(const Graphs& graphs, const layout::Layout& layout, const LowerOptions& options);

}  // namespace quintet::program
