// A training run from recipe to run folder. Ranks are threads of this process, or this process is one rank of
// an MPI job; the loop is the same.
//
//   train::RunResult result = train::run([] { return config::load("recipes/tiny.toml"); }, {});
//
// Everything a user can get wrong is found before step 1 and before anything is written. The run folder then
// gets recipe.toml, metrics.jsonl (a line when a step is done), and at the end model.safetensors and
// summary.json.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "compiler/compile.h"
#include "config/recipe.h"
#include "data/corpus.h"
#include "observe/console.h"
#include "train/loop_trace.h"
#include "train/run_folder.h"

namespace quintet::train {

struct RunOptions {
  bool overwrite = false;               // replace the run that is in run.dir
  std::optional<TraceRange> trace;      // steps whose work goes to trace.json
  observe::Console* console = nullptr;  // header, progress and summary of rank 0; null: silence
  // Asked at every step boundary; a number other than 0 (a signal's) on any rank ends the run on all,
  // cleanly.
  std::function<int()> interrupted;
  // Called by rank 0 when a step is finished; steps count from 1. What it throws ends the run.
  std::function<void(int64_t step, const StepResult& result)> on_step = {};
  compiler::ModelFn model;             // and the packages of its ops; empty: recipe.model
  std::optional<data::Corpus> corpus;  // instead of recipe.data.path
  bool poison = false;                 // see exec::ExecutorOptions
};

struct RunResult {
  config::Recipe recipe;
  Summary summary;       // complete on rank 0, whose process writes it
  bool is_first = true;  // this process holds rank 0
  int signal = 0;        // RunEnd::Interrupted: by which
  std::string message;   // RunEnd::NonFinite: what happened and what to do
};

// `load` gives the resolved recipe; what it throws is reported once, however many processes there are. Under
// an MPI launcher an error ends the whole job from here (exit code 2 for a UserError, else 1).
RunResult run(const std::function<config::Recipe()>& load, const RunOptions& options);

// The number of kernel threads of a rank: run.threads, or its share of this machine's cores, at least 1.
int kernel_threads(const config::Recipe& recipe, int64_t ranks_here);
// An equal share, of no more than the cores of this process: a launcher may have dealt them out already. What
// the host has where nobody says is what the process has.
int64_t share_of_cores(int64_t own, int64_t of_host, int64_t ranks_here);

// Where the tuned choices of matrix products are kept between runs; empty when no place is known.
base::Path tuned_file();

}  // namespace quintet::train
