// A training run, from recipe to run folder. Ranks are threads of this process, or this process is one rank
// of an MPI job; the loop is the same.
//
//   train::RunResult result = train::run([] { return config::load("recipes/tiny.toml"); }, {});
//
// User errors are reported before step 1 and before anything is written; a failure after that is another
// exception. The run folder then receives recipe.toml, run.json, metrics.jsonl (one line per completed step)
// and, at the end, its last checkpoint, timeline.json and summary.json. A disk that is full then does not
// lose the result: see RunResult::incomplete.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/file_system.h"
#include "base/provenance.h"
#include "compiler/compile.h"
#include "config/recipe.h"
#include "data/corpus.h"
#include "observe/console.h"
#include "train/loop_trace.h"
#include "train/run_folder.h"

namespace quintet::train {

struct RunOptions {
  bool overwrite = false;               // start at step 1 and replace an existing run in run.dir
  bool dry_run = false;                 // prepare everything and print the header, but run and write nothing
  bool verbose = false;                 // the full header
  base::Path from = {};                 // a checkpoint to start from, unless the run has one of its own
  std::optional<int64_t> from_step;     // of `from`: the checkpoint of this step instead of the newest
  bool weights_only = false;            // of `from`: only the weights, and start at step 1
  std::vector<std::string> load = {};   // of `from`: rules by name (train/load_plan.h)
  std::vector<std::string> allow = {};  // recipe keys, or sections, that may differ from the checkpoint's
  std::string version = {};             // of the tool, for checkpoints
  bool save_last = true;                // false: the state at the end is not saved
  std::optional<TraceRange> trace;      // steps to record in trace.json
  observe::Console* console = nullptr;  // header, progress and summary of rank 0; null: no output
  // Polled at every step boundary, before every batch of an evaluation and, on a CPU without pipeline stages,
  // between the micro-batches of long steps; a non-zero value (a signal number) on any rank stops all ranks
  // cleanly. The state that is then saved is that of the last complete step.
  std::function<int()> interrupted;
  double long_step_seconds = 0.5;  // a stop waits for the end of a shorter step
  // Whether this process was asked to stop. Called by threads that write a checkpoint, which then ignore
  // checkpoint.bandwidth.
  std::function<bool()> ending = {};
  // Called by rank 0 after each step, which is 1-based. An exception from it ends the run.
  std::function<void(int64_t step, const StepResult& result)> on_step = {};
  // Called by rank 0 before the first step and after each one with the seconds that the last save would take
  // if the run ended now, and with `begins` when that save begins.
  std::function<void(double seconds, bool begins)> on_last_save = {};
  // Called on every rank when a step begins (0, 0), and on CPUs when a pass over one of its micro-batches
  // does, with the number of those before it and of all.
  std::function<void(int done, int all)> on_progress = {};
  compiler::ModelFn model;                        // and the packages of its ops; empty: recipe.model
  std::optional<data::Corpus> corpus;             // replaces recipe.data.path
  bool poison = false;                            // see exec::ExecutorOptions
  compiler::DisabledPasses disabled_passes = {};  // the same on all ranks
  base::Provenance provenance = {};               // for run.json and checkpoints
  base::FileSystem* files = nullptr;              // for checkpoints, in tests; null: the real one
};

struct RunResult {
  config::Recipe recipe;
  Summary summary;       // complete in the process that holds rank 0, which writes it
  bool is_first = true;  // this process holds rank 0
  int signal = 0;        // RunEnd::Interrupted: the signal
  // RunEnd::Interrupted: the step, 1-based, that was given up between two micro-batches; 0: none.
  int64_t abandoned_step = 0;
  std::string message;  // RunEnd::NonFinite, SaveFailed: what happened and how to go on
  // What could not be written to the run folder, and where the last checkpoint is instead; empty: all was.
  std::string incomplete;
};

// `load` returns the resolved recipe; an error it throws is reported once, regardless of the number of
// processes. Under an MPI launcher, an error ends the whole job from here (exit code 2 for a UserError,
// otherwise 1).
RunResult run(const std::function<config::Recipe()>& load, const RunOptions& options);

// Kernel threads per rank: run.threads, or an equal share of this machine's cores, at least 1.
int kernel_threads(const config::Recipe& recipe, int64_t ranks_here);
// An equal share of the host's cores, capped at the cores of this process, which a launcher may have pinned
// already. `of_host` = 0 (unknown) means the host has `own` cores.
int64_t share_of_cores(int64_t own, int64_t of_host, int64_t ranks_here);

// Where tuned GEMM algorithms are cached between runs; empty when there is no cache folder.
base::Path tuned_file();

}  // namespace quintet::train
