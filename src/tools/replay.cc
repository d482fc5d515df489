#include "tools/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "base/scratch_folder.h"
#include "checkpoint/store.h"
#include "config/parse.h"
#include "train/checkpointer.h"
#include "train/loop.h"
#include "train/resume.h"
#include "train/run_state.h"

namespace quintet::tools {
namespace {

constexpr int kStopped = 1;  // stands for a signal

nlohmann::json record_of(const base::Path& metrics, int64_t step) {
  const std::string text = base::read_file(metrics);
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    auto record = base::parse_json(std::string_view(text).substr(at, end - at));
    if (record.is_object() && record.value("step", int64_t{0}) == step) return record;
    at = end + 1;
  }
  base::fail_user("{} has no record of step {}", metrics.string(), step);
}

// Numbers that are not finite are null in JSON.
double recorded(const nlohmann::json& record, const char* name) {
  const auto found = record.find(name);
  return found != record.end() && found->is_number() ? found->get<double>() : std::nan("");
}

train::RunState state_of(const base::Path& folder) {
  const base::Path manifest = folder / checkpoint::kManifestFile;
  return train::parse_run_state(
      checkpoint::parse_manifest(checkpoint::read_manifest(manifest), manifest.string()).run,
      manifest.string());
}

// What the user had allowed to change after a checkpoint.
std::vector<std::string> changed_keys(const train::RunState& before, const config::Recipe& recipe,
                                      int64_t schedule_steps) {
  const config::Recipe saved = config::parse(before.recipe, {}, "checkpoint");
  std::vector<std::string> keys = train::changed_exact_keys(saved, recipe);
  if (schedule_steps != before.schedule_steps || saved.optimizer.schedule != recipe.optimizer.schedule)
    keys.push_back("optimizer.schedule");
  return keys;
}

// A run may have begun with a checkpoint of another one.
void start_as_recorded(const train::RunFolder& folder, train::RunOptions& options) {
  const auto facts = base::parse_json(base::read_file(folder.facts()));
  if (!facts.is_object() || !facts.contains("from")) return;
  options.from = facts.at("from").value("checkpoint", std::string());
  options.weights_only = facts.at("from").value("weights_only", false);
  options.load = facts.at("from").value("load", std::vector<std::string>());
  if (!base::file_exists(options.from / checkpoint::kManifestFile))
    base::fail_user(
        "the run in '{}' began with the checkpoint '{}', which is gone, and has none of its own before "
        "this step",
        folder.path().string(), options.from.string());
}

}  // namespace

bool Replay::is_equal() const {
  return std::all_of(numbers.begin(), numbers.end(), [](const ReplayedNumber& n) { return n.is_equal(); });
}

Replay replay(const base::Path& run_folder, int64_t step,
              const std::function<void(int64_t, double)>& on_step) {
  const train::RunFolder folder(run_folder);
  if (!base::file_exists(folder.recipe_file()) || !base::file_exists(folder.metrics()))
    base::fail_user("'{}' is not a run folder: it must contain recipe.toml and metrics.jsonl",
                    run_folder.string());
  const nlohmann::json record = record_of(folder.metrics(), step);
  config::Recipe recipe = config::load(folder.recipe_file().string());
  recipe.run.dir = run_folder.string();
  Replay result{.step = step, .numbers = {}};
  train::RunOptions options;
  std::optional<train::RunState> before, after;
  for (const checkpoint::Entry& entry : checkpoint::Store(train::checkpoint_folder(recipe)).list()) {
    if (!entry.complete) continue;
    if (entry.step < step) {
      options.from = entry.folder;
      result.from = entry.step;
      before = state_of(entry.folder);
    } else if (!after) {
      after = state_of(entry.folder);
    }
  }
  const base::ScratchFolder scratch;  // not in the run folder, which may be read-only
  // The recipe that the step was run with: that of the next checkpoint, or else the run's.
  if (after) recipe = config::parse(after->recipe, {}, "checkpoint");
  if (before)
    options.allow = changed_keys(*before, recipe, after ? after->schedule_steps : before->schedule_steps);
  else
    start_as_recorded(folder, options);
  recipe.run.dir = scratch.path().string();
  recipe.run.backend = config::BackendKind::Local;
  recipe.checkpoint = {};
  options.overwrite = true;
  options.save_last = false;
  std::atomic<bool> done = false;
  options.on_step = [&](int64_t number, const train::StepResult& r) {
    if (on_step) on_step(number, r.loss);
    if (number != step) return;
    done = true;
    for (const auto& [name, now] :
         {std::pair{"loss", r.loss}, std::pair{"grad_norm", r.grad_norm}, std::pair{"lr", r.lr}})
      result.numbers.push_back({name, now, recorded(record, name)});
  };
  options.interrupted = [&] { return done ? kStopped : 0; };
  train::run([&] { return recipe; }, options);
  QUINTET_CHECK(done, "step {} was not reached", step);
  return result;
}

std::string to_text(const Replay& r) {
  std::string text = fmt::format("step {}, from {}\n", r.step,
                                 r.from == 0 ? "the start of the run" : fmt::format("step {}", r.from));
  for (const ReplayedNumber& n : r.numbers)
    text += fmt::format("{:<12}{}  {}\n", n.name, n.now,
                        n.is_equal() ? "as recorded" : fmt::format("recorded: {}", n.recorded));
  return text + (r.is_equal()
                     ? "equal in every bit\n"
                     : "not equal: bits are the same only if all steps from there ran with this layout and "
                       "recipe\n");
}

std::string to_json(const Replay& r) {
  nlohmann::ordered_json json = {{"step", r.step}, {"from", r.from}, {"equal", r.is_equal()}};
  for (const ReplayedNumber& n : r.numbers) json[n.name] = {{"now", n.now}, {"recorded", n.recorded}};
  return base::json_text(json) + "\n";
}

}  // namespace quintet::tools
