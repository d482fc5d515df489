// What a run leaves behind: recipe.toml, metrics.jsonl, summary.json, model.safetensors and trace.json in one
// folder, and schedule.txt when the pipeline's schedule is a file of the user's. docs/formats/run_folder.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"
#include "config/recipe.h"

namespace quintet::train {

class RunFolder {
 public:
  explicit RunFolder(base::Path path) : path_(std::move(path)) {}

  // Throws a UserError when the folder holds a run already and `overwrite` is false. Touches nothing.
  void require_free(bool overwrite) const;
  // Makes the folder, proves that it can be written and that `bytes` fit on its disk, removes what an earlier
  // run left and writes the recipe, with a copy of its schedule file, which the recipe then names: the folder
  // needs nothing outside it. Throws a UserError before anything of an earlier run is gone.
  void create(const config::Recipe& recipe, int64_t bytes) const;

  const base::Path& path() const { return path_; }
  base::Path recipe_file() const { return path_ / "recipe.toml"; }
  base::Path metrics() const { return path_ / "metrics.jsonl"; }
  base::Path summary() const { return path_ / "summary.json"; }
  base::Path weights() const { return path_ / "model.safetensors"; }
  base::Path trace() const { return path_ / "trace.json"; }
  base::Path schedule() const { return path_ / kScheduleFile; }

 private:
  static constexpr const char* kScheduleFile = "schedule.txt";
  base::Path path_;
};

enum class RunEnd : uint8_t {
  Finished,     // all steps done
  Interrupted,  // asked to stop: the step in progress was finished and everything saved
  NonFinite,    // run.max_skipped_steps steps in a row had a non-finite loss or gradient
};
std::string_view to_string(RunEnd end);  // "finished", "interrupted", "non-finite"

// The contents of summary.json.
struct Summary {
  struct Evaluation {
    int64_t step = 0;
    double loss = 0;
    int64_t tokens = 0;
  };
  struct RankMemory {
    int64_t planned_peak_bytes = 0, measured_peak_bytes = 0;
  };
  std::string name;
  RunEnd end = RunEnd::Finished;
  int64_t steps = 0, skipped_steps = 0;
  double first_loss = 0, last_loss = 0;
  int64_t tokens = 0;       // that counted, over all steps
  double seconds = 0;       // of all steps, evaluation and saving left out
  double tokens_per_s = 0;  // without the first two steps (they measure memory), when there are more
  std::vector<Evaluation> evaluations;
  std::vector<RankMemory> ranks;
  // Rows that experts receive vary from step to step: the plan has room for the most that can come, and the
  // measurement, which the first two steps make, may stay below it. Otherwise both are equal.
  bool planned_is_bound = false;
};
std::string to_json(const Summary& summary);
// The same for people.
std::vector<std::string> summary_lines(const Summary& summary, const RunFolder& folder);

}  // namespace quintet::train
