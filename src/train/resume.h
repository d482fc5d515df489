// How a run starts: at step 1, from the newest checkpoint of its folder, or from another checkpoint. A run
// never starts over silently, and never continues with something changed that makes it another run.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/manifest.h"
#include "config/recipe.h"
#include "train/load_plan.h"
#include "train/run_data.h"
#include "train/run_folder.h"
#include "train/run_state.h"

namespace quintet::train {

struct StartOptions {
  bool overwrite = false;              // start at step 1 and replace an existing run
  base::Path from = {};                // a checkpoint (checkpoint::find_checkpoint)
  std::optional<int64_t> step = {};    // of `from`: the checkpoint of this step instead of the newest
  bool weights_only = false;           // of `from`: only the weights, and start at step 1
  std::vector<std::string> load = {};  // of `from`: rules by name (parse_load_rule)
  std::vector<std::string> allow;      // keys, or sections of keys, that may differ from the checkpoint's
  // How a manifest is read: it is large, and one process may read it for all (start_checks.h).
  std::function<std::string(const base::Path& file)> read = checkpoint::read_manifest;
};

struct Start {
  Existing existing = Existing::Refuse;  // what happens to files in the run folder
  base::Path checkpoint;                 // empty: none is loaded
  uint64_t manifest_sum = 0;             // XXH3-64 of its manifest
  LoadOptions load;
  std::optional<RunState> state;   // of the checkpoint, unless load.weights_only
  int64_t schedule_steps = 0;      // see RankOptions
  bool check_data = true;          // that the data are the checkpoint's
  std::optional<int64_t> newest;   // the step of the newest checkpoint that was there, if it is continued
  std::vector<std::string> lines;  // for the user, first

  int64_t step() const { return state ? state->step : 0; }
};

// Reads the run folder and manifests; changes nothing. The recipe's learning-rate schedule becomes the
// checkpoint's where only the length of the run has changed. UserError with the key that differs and what to
// do about it.
Start plan_start(config::Recipe& recipe, const StartOptions& options);

// The folder of checkpoints that a path names: itself, or that of a run folder, wherever its recipe has it.
// Empty when there are no checkpoints.
base::Path find_store(const base::Path& path);
// The checkpoint that a path names (checkpoint::find_checkpoint); of a run folder see find_store().
base::Path find_checkpoint(const base::Path& path, std::optional<int64_t> step = {});
// The resolved recipe of the run that saved it.
config::Recipe recipe_of(const checkpoint::Manifest& manifest, const std::string& source);

DataIdentity identity_of(const RunData& data);
// Throws `error`, of a checkpoint that cannot be read, with the newest older one that is not damaged and how
// to continue from it.
[[noreturn]] void refuse_damaged(const base::UserError& error, const base::Path& folder);

// UserError unless the data are those of the checkpoint, or may differ.
void require_same_data(const Start& start, const DataIdentity& data);

// Keys that make a run another run when they change; others may change at any checkpoint.
bool is_exact_key(const std::string& key);
// Those of them in which two recipes differ.
std::vector<std::string> changed_exact_keys(const config::Recipe& saved, const config::Recipe& now);

// Steps in a row before a checkpoint that were skipped.
int64_t skipped_in_row(const RunState& state);
// A run has diverged: how to go back to the newest checkpoint of the store before `step` whose own last step
// was good. The weights after the step before the first that was skipped are not: they gave that result.
std::string way_back(const base::Path& store, int64_t step);

}  // namespace quintet::train
