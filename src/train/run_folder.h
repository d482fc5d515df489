// The output folder of a run: recipe.toml, run.json, metrics.jsonl, ledger.jsonl, timeline.json,
// summary.json, checkpoints (room checkpoint), trace.json, report.html (written by the tool), and
// schedule.txt when the recipe uses a schedule file. See docs/formats/run_folder.md.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/file_lock.h"
#include "config/recipe.h"
#include "program/program.h"
#include "train/traffic.h"

namespace quintet::train {

// What becomes of an earlier run's files in the folder.
enum class Existing : uint8_t {
  Refuse,    // a UserError
  Replace,   // they are removed
  Continue,  // the same run continues: metrics stay
};

class RunFolder {
 public:
  explicit RunFolder(base::Path path) : path_(std::move(path)) {}

  // UserError when the folder contains a file that a run would replace and `existing` is Refuse: an earlier
  // run's, or one of the user's that has the same name. Changes nothing on disk.
  void require_free(Existing existing) const;
  // UserError when something that is not a file has the name of one that a run writes here: a folder, a pipe
  // that nobody reads, a link to nothing.
  void require_only_files() const;
  // UserError unless the folder's disk has space for `bytes`.
  void require_room(int64_t bytes) const;
  // UserError unless the folder exists and is writable, or can be created. Leaves nothing behind.
  void require_creatable() const;
  // Creates the folder, checks that it is writable and has space for `bytes`, locks it against other runs and
  // calls require_free again. Files of an earlier run stay as they are. The folder stays locked while the
  // result lives.
  [[nodiscard]] base::FileLock acquire(int64_t bytes, Existing existing) const;
  // Notes in the lock's file that a checkpoint of the run is complete, and whether a run that was killed has:
  // without one a start may begin again at step 1, and it must not if checkpoints were moved since.
  static void note_saved(const base::FileLock& lock);
  bool has_saved() const;
  // With the lock held and everything loaded that the run starts from: removes the files of an earlier run,
  // unless the same run goes on, and writes the recipe. A schedule file is copied into the folder and the
  // recipe refers to the copy, so the folder is self-contained.
  void begin(const config::Recipe& recipe, Existing existing) const;

  // Creates the folder and writes only the resolved recipe.
  void write_recipe(const config::Recipe& recipe) const;

  // Where someone removed or moved the folder during a run whose last state was saved there since: writes the
  // recipe and run.json again, and throws a UserError that says what is lost.
  void restore_if_removed(const config::Recipe& recipe, const std::string& run_json, int64_t step) const;

  const base::Path& path() const { return path_; }
  base::Path recipe_file() const { return path_ / "recipe.toml"; }
  base::Path metrics() const { return path_ / "metrics.jsonl"; }
  base::Path ledger() const { return path_ / "ledger.jsonl"; }
  base::Path facts() const { return path_ / "run.json"; }
  base::Path summary() const { return path_ / "summary.json"; }
  base::Path trace() const { return path_ / "trace.json"; }
  base::Path timeline() const { return path_ / "timeline.json"; }  // of one traced step
  base::Path report() const { return path_ / "report.html"; }
  base::Path schedule() const { return path_ / kScheduleFile; }
  base::Path algorithms() const { return path_ / "gemm_algorithms.txt"; }  // of a continued run on GPUs
  base::Path lock() const { return path_ / ".lock"; }                      // present while a run writes

 private:
  // What a run replaces in addition to recipe.toml.
  std::vector<base::Path> results() const;

  static constexpr const char* kScheduleFile = "schedule.txt";
  base::Path path_;
};

// UserErrors about the recipe of a run and the folder that the run would use. `file` is what was asked for.
// --overwrite in the recipe's own folder means an earlier run, not the recipe:
// `cd experiment; quintet train recipe.toml --run-dir . --overwrite`.
void require_recipe_stays(const std::string& file, const RunFolder& folder);
// The recipe of a run folder names that folder. In one that was moved or copied it names another.
void require_in_place(const std::string& file, const std::string& run_dir);

enum class RunEnd : uint8_t {
  Finished,     // all steps done
  Interrupted,  // stopped on request: the step in progress was finished and its state saved
  NonFinite,    // the last steps had a non-finite loss or gradient, or run.max_skipped_steps in a row did
  SaveFailed,   // a checkpoint could not be written; the last state is saved
};
std::string_view to_string(RunEnd end);  // "finished", "interrupted", "non-finite", "save failed"

// The contents of summary.json.
struct Summary {
  struct Evaluation {
    int64_t step = 0;
    double loss = 0;
    int64_t tokens = 0;
  };
  struct RankMemory {
    int64_t planned_peak_bytes = 0, measured_peak_bytes = 0;
    // Live at the planned peak, by program::MemoryClass; the rest of the peak is gaps between buffers.
    std::array<int64_t, program::kNumMemoryClasses> planned_by_class{};
  };
  std::string name;
  RunEnd end = RunEnd::Finished;
  std::string ended_at;  // base::utc_text
  int64_t steps = 0, skipped_steps = 0;
  int64_t non_finite_at_end = 0;  // the last so many steps; overflows of a dynamic loss scale do not count
  double first_loss = 0, last_loss = 0;
  int64_t tokens = 0;        // valid tokens of all steps
  double seconds = 0;        // of all steps, without evaluation and saving
  double setup_seconds = 0;  // before the first step: reading data, compiling, verifying
  double wall_seconds = 0;   // of this process: from the recipe to the last checkpoint
  double tokens_per_s = 0;   // without the first two steps, which measure memory, if there are more
  double auto_seconds = 0;   // checkpoint.every = "auto": between saves, as last measured; 0: not measured
  std::vector<Evaluation> evaluations;
  std::vector<RankMemory> ranks;
  std::vector<GroupTraffic> traffic;  // of this process' steps and evaluations
  // The plan covers the most that a step or a rank can need, and the measurement, taken in the first two
  // steps, may stay below it: the number of rows that experts receive varies between steps, and that of the
  // matrices that Muon deals to owners may differ between ranks. Otherwise both are equal.
  bool planned_is_bound = false;
};
std::string to_json(const Summary& summary);
// The same as text for the console.
std::vector<std::string> summary_lines(const Summary& summary, const RunFolder& folder);
// The output of `train --dry-run --json`: the size of the run and the planned memory of each rank.
std::string dry_run_json(const config::Recipe& recipe, const Summary& summary);

}  // namespace quintet::train
