// The spine: recipe -> graph -> local graph -> program, in one readable line. Compilation is a pure function
// of the resolved recipe, the model and the rank; nothing downstream looks at the recipe again to learn what
// to do.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/custom_model.h"
#include "compiler/fit_recompute.h"
#include "config/recipe.h"
#include "graph/builder.h"
#include "layout/groups.h"
#include "layout/stages.h"
#include "program/expand.h"
#include "program/lower.h"
#include "schedule/schedule.h"

namespace quintet::compiler {

struct PassRecord {
  std::string name;
  int64_t nanos = 0;
};

struct CompileOptions {
  base::RankId rank{0};
  bool evaluate = false;  // also lower an evaluation pass
  bool infer = false;     // a forward pass to logits instead of training
  ModelFn model;          // and the packages of its ops; empty: recipe.model (room models)
  // What the backend's kernels need as scratch (kernels are chosen there, bytes are planned here).
  std::function<int64_t(const program::Instr&)> workspace_bytes;
  // Whether the calls of a step are expanded (and those of an evaluation); memory is known without.
  bool expand = true;
  // false: B and W stay apart although the schedule does not part them (to learn what each takes).
  bool fold_backward = true;
  // false: projections that could lie side by side stay values of their own (to learn what each takes).
  bool pack = true;
  // Called with the text of the graph or program after each pass; for dumps.
  std::function<void(const std::string& pass, const std::string& text)> dump;
  // What to recompute, in place of the recipe's memory section. Ranks of one process need find it only once.
  std::optional<Fit> fit = {};
};

// The cut of the model into stages, and the order of micro-batches; one stage and no schedule without a
// pipeline.
struct Pipeline {
  layout::Stages stages;
  std::optional<schedule::Schedule> schedule;
};

struct Compiled {
  layout::Layout layout;
  Pipeline pipeline;
  std::optional<Fit> fit;  // memory.recompute = "fit": what was chosen
  graph::Graph logical;
  layout::LocalGraph local;
  graph::StepGraph step_graph;  // the optimizer's step, and every state of the model's parameters
  std::vector<layout::Group> groups;
  program::Program program;
  program::Expanded step;      // one optimizer step (or one inference)
  program::Expanded evaluate;  // one evaluation batch
  std::vector<PassRecord> passes;
};

Compiled compile(const config::Recipe& recipe, const CompileOptions& options);

// The programs of some ranks. What the ranks have in common (the graphs, their partition, the schedule) is
// made once, and `threads` ranks are lowered at a time: options.workspace_bytes must bear that. options.rank
// is not looked at. Every program is the one that compile() makes.
struct RankProgram {
  program::Program program;
  program::Expanded step, evaluate;
};
struct Ranks {
  layout::Layout layout;
  Pipeline pipeline;
  std::optional<Fit> fit;
  graph::Graph model;                // of a micro-batch, before recompute
  std::vector<RankProgram> program;  // in the order of the ranks that were asked for
};
Ranks compile_ranks(const config::Recipe& recipe, const CompileOptions& options,
                    const std::vector<base::RankId>& ranks, int threads);

// All ranks, in rank order.
std::vector<RankProgram> compile_world(const config::Recipe& recipe, const CompileOptions& options,
                                       int threads);

// One rank of every pipeline place, the first in all other axes. The structure of a program depends on the
// pipeline place only, so these stand for the world.
std::vector<base::RankId> pipeline_ranks(const config::Recipe& recipe);

}  // namespace quintet::compiler
