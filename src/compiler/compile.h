// The spine of the compiler: recipe -> graph -> local graph -> program. Compilation is a pure function
// of the resolved recipe, the model and the rank; nothing downstream reads the recipe to decide what to
// do. compile() and its variants return verified programs, unless their name says otherwise.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "compiler/custom_model.h"
#include "compiler/fit_recompute.h"
#include "compiler/optional_passes.h"
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

// A program that generates text instead of training: its entries, which are Program::variants in this order.
struct Serving {
  struct Entry {
    graph::Mode mode = graph::Mode::Prefill;  // or Decode, Score, Routes
    int64_t rows = 0;  // of a prompt; sequences that are decoded at once; of packed texts
  };
  std::vector<Entry> entries;
  graph::CacheShape cache = {};  // Prefill and Decode
  graph::Sampling sampling = {};

  // The index of an entry; -1: there is none.
  int find(graph::Mode mode, int64_t rows) const;
};

struct CompileOptions {
  base::RankId rank{0};
  bool evaluate = false;                // also lower an evaluation pass
  bool infer = false;                   // compile a forward pass to logits instead of training
  std::optional<Serving> serving = {};  // compile these entries instead; implies infer
  ModelFn model;                        // and the packages of its ops; empty: recipe.model (room models)
  // Scratch bytes of the backend's kernels: the backend selects kernels, the compiler plans their memory.
  std::function<int64_t(const program::Instr&)> workspace_bytes;
  // false: keep B and W separate even if the schedule does not split them (to measure each).
  bool fold_backward = true;
  // Left out, to find the pass behind a wrong number or to measure what it saves.
  DisabledPasses disabled = {};
  // Receives the text of the graph or program after each pass.
  std::function<void(const std::string& pass, const std::string& text)> dump;
  // Replaces the recipe's memory section. Ranks of one process need to find it only once.
  std::optional<Fit> fit = {};
};

// The stages of the model and the order of micro-batches; a single stage and no schedule without a
// pipeline.
struct Pipeline {
  layout::Stages stages;
  std::optional<schedule::Schedule> schedule;
  std::vector<schedule::Schedule> variants;  // of program::Program::variants
};

// Ranks with the same pipeline rank are a class: their programs are one program at different mesh
// coordinates. Its representative is the first of them. The hash is that of the representative's program as
// lowered, which every rank can compute: it depends on the recipe and the model, not on the rank nor on the
// kernels' scratch.
struct Compiled {
  layout::Layout layout;
  Pipeline pipeline;
  std::optional<Fit> fit;  // memory.recompute = "fit": the choice
  graph::Graph logical;
  layout::LocalGraph local;
  graph::StepGraph step_graph;  // the optimizer's step, and every state of the model's parameters
  std::vector<layout::Group> groups;
  program::Program program;
  program::Expanded step;                   // one optimizer step (or one inference)
  program::Expanded evaluate;               // one evaluation batch
  std::vector<program::Expanded> variants;  // of program.variants
  base::Hash class_hash;
  std::vector<PassRecord> passes;
};

// What compile() builds from recipe.model before any pass.
graph::Graph training_graph(const config::Recipe& recipe);

// Verified alone and as a member of its class.
Compiled compile(const config::Recipe& recipe, const CompileOptions& options);

// For trials that need only memory or single instructions: neither verified nor expanded.
Compiled compile_unverified(const config::Recipe& recipe, const CompileOptions& options);

// The programs of several ranks. The common part (graphs, partition, schedule) is compiled once; up to
// `threads` ranks are lowered concurrently, so options.workspace_bytes must be thread-safe. options.rank is
// ignored. Every program equals the one that compile() returns.
struct RankProgram {
  std::vector<layout::Group> groups;
  program::Program program;
  program::Expanded step, evaluate;
  std::vector<program::Expanded> variants;  // of program.variants
  base::Hash class_hash;
};
struct Ranks {
  layout::Layout layout;
  Pipeline pipeline;
  std::optional<Fit> fit;
  graph::Graph model;  // of a micro-batch, before recompute
  std::vector<graph::StateDecl> states;
  std::vector<RankProgram> program;  // in the order of the requested ranks
};
Ranks compile_ranks(const config::Recipe& recipe, const CompileOptions& options,
                    const std::vector<base::RankId>& ranks, int threads);

// All ranks, in rank order.
std::vector<RankProgram> compile_world(const config::Recipe& recipe, const CompileOptions& options,
                                       int threads);

// One representative per class, in the order of pipeline ranks: the first rank along all other axes. The
// structure of a program depends only on the pipeline rank, so these represent the world. They are also
// verified together.
Ranks compile_classes(const config::Recipe& recipe, const CompileOptions& options, int threads);

// The same in two steps: trials, some of which are then expanded and verified.
Ranks compile_classes_unverified(const config::Recipe& recipe, const CompileOptions& options, int threads);
void expand(Ranks& classes, int threads);
void verify(const Ranks& classes, int threads);

// The text whose hash is class_hash, for the class of a pipeline rank.
std::string class_text(const config::Recipe& recipe, const CompileOptions& options, int pipeline_place);

}  // namespace quintet::compiler
