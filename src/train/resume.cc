#include "train/resume.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/checksum.h"
#include "base/error.h"
#include "base/error_codes.h"
#include "base/json.h"
#include "base/plural.h"
#include "base/printable.h"
#include "base/text.h"
#include "checkpoint/older.h"
#include "checkpoint/store.h"
#include "compiler/compile.h"
#include "config/batch_ramp.h"
#include "config/codes.h"
#include "config/hf/config.h"
#include "config/parse.h"
#include "config/print.h"
#include "tokenizer/tokenizer.h"
#include "train/checkpointer.h"
#include "train/elsewhere.h"
#include "train/end_messages.h"
#include "train/run_metrics.h"

namespace quintet::train {
namespace {

using config::KeyText;
using config::Recipe;

struct Difference {
  std::string key, saved, now;
};

std::vector<Difference> differences(const Recipe& saved, const Recipe& now) {
  const std::vector<KeyText> a = config::key_texts(saved), b = config::key_texts(now);
  std::vector<Difference> out;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i]) out.push_back({a[i].key, a[i].text, b[i].text});
  return out;
}

// "optimizer" and "optimizer.schedule" cover "optimizer.schedule.kind".
bool covers(const std::string& allowed, const std::string& key) {
  return key == allowed || (key.starts_with(allowed) && key[allowed.size()] == '.');
}

bool is_allowed(const StartOptions& options, const std::string& key) {
  return std::any_of(options.allow.begin(), options.allow.end(),
                     [&](const std::string& allowed) { return covers(allowed, key); });
}

void require_known_keys(const std::vector<std::string>& allow) {
  std::vector<std::string> keys;
  for (const KeyText& k : config::key_texts(Recipe())) keys.push_back(k.key);
  for (const std::string& allowed : allow) {
    if (std::any_of(keys.begin(), keys.end(), [&](const std::string& key) { return covers(allowed, key); }))
      continue;
    const auto nearest = base::nearest_word(allowed, keys);
    base::fail_user("--allow {}: there is no such recipe key{}", allowed,
                    nearest ? fmt::format("; did you mean {}?", *nearest) : "");
  }
}

// A learning-rate schedule derived for another number of steps does not replace the one that the run has
// followed so far.
void keep_schedule(Recipe& recipe, const Recipe& saved, const RunState& state, const StartOptions& options,
                   Start& start) {
  start.schedule_steps = state.schedule_steps;
  // Also when the length changed at an earlier checkpoint, and the same command is given again.
  const bool longer = recipe.run.steps != saved.run.steps || state.schedule_steps != saved.run.steps;
  if (is_allowed(options, "optimizer.schedule.kind")) {
    start.schedule_steps = 0;
    return;
  }
  if (!longer) return;
  const bool ramps = recipe.optimizer.weight_decay_ramp.kind != config::RampKind::Constant;
  const bool changes = recipe.optimizer.schedule != saved.optimizer.schedule ||
                       recipe.optimizer.schedule.kind == config::ScheduleKind::Wsd || ramps;
  recipe.optimizer.schedule = saved.optimizer.schedule;
  std::string line;
  if (recipe.run.steps != saved.run.steps)
    line =
        fmt::format("run.steps is {}, {} when the checkpoint was saved", recipe.run.steps, saved.run.steps);
  if (changes)
    line += fmt::format(
        "{}the learning-rate schedule{} that of {} steps (--allow optimizer.schedule applies the recipe's)",
        line.empty() ? "" : "; ", ramps ? " and the weight-decay ramp stay" : " stays", state.schedule_steps);
  if (!line.empty()) start.lines.push_back(std::move(line));
}

// A parameter that the recipe has in another shape than the checkpoint, or that only one of them has; empty:
// there is none, or it is not known. For messages: it compiles the recipe.
std::string other_parameter(const Recipe& recipe, const checkpoint::Manifest& m) {
  try {
    const compiler::Compiled compiled = compiler::compile_unverified(recipe, {.rank = base::RankId(0)});
    for (const graph::StateDecl& s : compiled.step_graph.states) {
      if (s.keep != graph::Keep::Saved || s.role == graph::Role::Scalar || checkpoint::is_state_name(s.name))
        continue;
      std::vector<int64_t> shape;
      for (const graph::DimSize& d : s.type.dims) shape.push_back(d.size);
      const checkpoint::SavedTensor* const saved = m.find(s.name);
      if (saved == nullptr) return fmt::format("{} is not in the checkpoint", s.name);
      if (saved->info.shape != shape)
        return fmt::format("{} has the shape [{}], [{}] in the checkpoint", s.name, fmt::join(shape, ", "),
                           fmt::join(saved->info.shape, ", "));
    }
  } catch (const std::exception&) {  // the differences are reported anyway
  }
  return {};
}

// Which sequences a step reads follows from how many are read before it. Batches may change as long as the
// recipe has read as many by now as the run: its past is then in batch.ramp. Returns what to do otherwise.
std::string other_position(const Recipe& recipe, const Recipe& saved, const RunState& state,
                           const base::Path& folder) {
  const int64_t sequences = config::BatchRamp(recipe).after(state.step).sequences;
  if (sequences == state.sequences) return {};
  return fmt::format(
      "the run has read {} sequences in {} steps, and with this recipe it would have read {}, so samples "
      "would be repeated or left out. Keep the past in the recipe: a larger batch goes on exactly with "
      "batch.ramp = [{{ until = {}, global = {} }}] and --allow batch; a smaller one needs a new run from "
      "the weights, with --run-dir NEW --from {} --weights-only",
      base::thousands(state.sequences), state.step, base::thousands(sequences), state.step,
      saved.batch.global, folder.string());
}

void require_same_run(const Recipe& recipe, const Recipe& saved, const StartOptions& options,
                      const base::Path& folder, const checkpoint::Manifest& manifest, Start& start) {
  std::string refused, keys;
  bool other_model = false, other_batch = false;
  const std::string position = other_position(recipe, saved, *start.state, folder);
  for (const Difference& d : differences(saved, recipe)) {
    if (!is_exact_key(d.key)) continue;
    if (d.key == "data.tokenizer" && !start.state->tokenizer.empty()) continue;  // its tokens are compared
    if (is_allowed(options, d.key)) {
      if (d.key.starts_with("batch.") && !position.empty())
        base::fail_user("--allow {}: {}", d.key, position);
      start.lines.push_back(fmt::format("{} is {}, {} when the checkpoint was saved", d.key, d.now, d.saved));
      continue;
    }
    refused += fmt::format("\n  {} is {}, {} in the checkpoint", d.key, d.now, d.saved);
    keys += fmt::format(" --allow {}", d.key);
    other_model = other_model || d.key.starts_with("model.");
    other_batch = other_batch || d.key.starts_with("batch.");
  }
  if (refused.empty()) return;
  if (other_batch && !position.empty())
    base::fail_user(
        "this recipe cannot continue {} exactly:{}\n{}. --fresh starts over, and replaces the run",
        folder.string(), refused, "Restore the recipe: " + position);
  const std::string other = other_model ? other_parameter(recipe, manifest) : std::string();
  const std::string anyway = other.empty()
                                 ? "continue anyway with" + keys
                                 : fmt::format(
                                       "start a new run with those weights that fit (--run-dir NEW --from {} "
                                       "--weights-only --load 'PATTERN=fresh': {})",
                                       folder.string(), other);
  base::fail_user(
      "this recipe cannot continue {} exactly:{}\nRestore the recipe, {}, or start over with --fresh, which "
      "replaces the run",
      folder.string(), refused, anyway);
}

// Weights belong to the tokens that their rows stand for.
void require_same_tokens(const Recipe& recipe, const std::string& saved_hash, const std::string& saved_path,
                         const StartOptions& options, const base::Path& folder) {
  if (saved_hash.empty() || is_allowed(options, "data.tokenizer")) return;
  const std::string now = tokenizer::vocabulary_hash(*tokenizer::load_tokenizer(recipe.data.tokenizer));
  if (now == saved_hash) return;
  base::fail_user(
      "data.tokenizer = \"{}\" is the tokenizer of another model: its tokens ({}) are not those that {} was "
      "trained with ({}, from \"{}\"), so its embeddings would be read under other ids. Use that tokenizer, "
      "or continue anyway with --allow data.tokenizer",
      recipe.data.tokenizer, now, folder.string(), saved_hash, saved_path);
}

// A Hugging Face folder that gives the first weights has their tokenizer.
void require_tokens_of_folder(const Recipe& recipe, const StartOptions& options) {
  const base::Path folder(recipe.model.hf);
  if (recipe.model.hf.empty() || !config::has_tokenizer(folder) || is_allowed(options, "data.tokenizer"))
    return;
  const auto theirs = tokenizer::load_tokenizer(folder.string()),
             ours = tokenizer::load_tokenizer(recipe.data.tokenizer);
  const auto other = tokenizer::first_other_token(*theirs, *ours);
  if (!other) return;
  base::fail_user(
      "data.tokenizer = \"{}\" is the tokenizer of another model: id {} is {} there and '{}' in the folder "
      "of model.hf, '{}', so its embeddings would be read under other ids. Leave data.tokenizer out, or "
      "train anyway with --allow data.tokenizer",
      recipe.data.tokenizer, *other,
      *other < ours->vocab_size() ? fmt::format("'{}'", base::printable(ours->token(*other))) : "not a token",
      base::printable(theirs->token(*other)), recipe.model.hf);
}

Start continue_from(Recipe& recipe, const StartOptions& options, const base::Path& folder,
                    Existing existing) {
  const base::Path manifest_file = folder / checkpoint::kManifestFile;
  uint64_t sum = 0;
  const checkpoint::Manifest manifest = [&] {
    try {
      const std::string text = options.read(manifest_file);
      sum = base::checksum_of(std::as_bytes(std::span(text)));
      return checkpoint::parse_manifest(text, manifest_file.string());
    } catch (const base::UserError& e) {
      refuse_damaged(e, folder);
    }
  }();
  Start start{.existing = existing,
              .checkpoint = folder,
              .manifest_sum = sum,
              .load = {.weights_only = options.weights_only, .rules = {}}};
  for (const std::string& rule : options.load) start.load.rules.push_back(parse_load_rule(rule));
  if (options.weights_only) {
    start.lines.push_back(
        fmt::format("starts at step 1 with the weights of {} (step {})", folder.string(), manifest.step));
    if (manifest.run.is_object() && manifest.run.contains("tokenizer")) {
      const RunState state = parse_run_state(manifest.run, manifest_file.string());
      const Recipe saved = config::parse(state.recipe, {}, manifest_file.string());
      require_same_tokens(recipe, state.tokenizer, saved.data.tokenizer, options, folder);
    }
    return start;
  }
  start.state = parse_run_state(manifest.run, manifest_file.string());
  if (start.state->step != manifest.step)
    base::fail_user("{} contradicts itself: step {} and {}", manifest_file.string(), manifest.step,
                    start.state->step);
  // A folder of another step would be set aside, or replaced, by the steps that follow.
  if (const auto named = checkpoint::step_of(folder); named && *named != manifest.step)
    base::fail_user(
        "'{}' is the checkpoint of step {}: a folder of that name must have that of step {}. "
        "Rename it to '{}'",
        folder.string(), manifest.step, *named,
        checkpoint::Store(folder.parent_path()).folder_of(manifest.step).filename().string());
  const Recipe saved = config::parse(start.state->recipe, {}, manifest_file.string());
  if (recipe.run.steps < manifest.step)
    base::fail_user(
        "{} is at step {}, after the last step of this recipe: run.steps is {}. Start over with --fresh "
        "(--overwrite), which replaces the run, or choose another folder with --run-dir",
        folder.string(), manifest.step, recipe.run.steps);
  if (existing == Existing::Continue && recipe.run.steps == manifest.step)
    start.lines.push_back(fmt::format(
        "this run is complete: step {} of {} is in {}. A larger run.steps continues it, --fresh starts over",
        manifest.step, recipe.run.steps, folder.string()));
  else
    start.lines.push_back(fmt::format("continues from {}, after step {} of {}", folder.string(),
                                      manifest.step, recipe.run.steps));
  if (existing == Existing::Continue) {
    const base::Path metrics = RunFolder(recipe.run.dir).metrics();
    const int64_t last = last_recorded_step(metrics);
    const int64_t repeated = std::min(last, recipe.run.steps) - manifest.step;
    if (repeated > 0)
      start.lines.push_back(fmt::format("{} after the checkpoint, {} to {}, {} repeated",
                                        base::counted(repeated, "step"), manifest.step + 1,
                                        manifest.step + repeated, repeated == 1 ? "is" : "are"));
    if (last > recipe.run.steps)
      start.lines.push_back(fmt::format("the records after step {} are left out", recipe.run.steps));
    if (last < manifest.step)
      start.lines.push_back(
          fmt::format("warning: '{}' {}: the records of steps {} to {} are lost", metrics.string(),
                      base::file_exists(metrics) ? "ends early" : "does not exist", last + 1, manifest.step));
  }
  const int64_t skipped = skipped_in_row(*start.state);
  if (manifest.step > 0 && (skipped > 1 || !is_finite(start.state->summary)))
    start.lines.push_back(fmt::format(
        "warning: the last {} steps before this checkpoint were skipped, and the last loss is {}. {}",
        skipped, start.state->summary.last_loss, way_back(folder.parent_path(), manifest.step - skipped)));
  keep_schedule(recipe, saved, *start.state, options, start);
  require_same_tokens(recipe, start.state->tokenizer, saved.data.tokenizer, options, folder);
  require_same_run(recipe, saved, options, folder, manifest, start);
  start.check_data = !is_allowed(options, "data.path");
  return start;
}

// Whether a run in the folder was killed before it could save, or could save nowhere, and is the run of this
// recipe. Only what such a run leaves may be replaced: never weights, except those of checkpoints that it did
// not complete, nor a recipe that somebody has written or edited. UserError with the keys that differ where
// nothing else does.
bool was_killed_early(const RunFolder& folder, const checkpoint::Store& store, const Recipe& recipe) {
  if (!base::file_exists(folder.recipe_file()) || base::file_exists(folder.summary())) return false;
  // A run removes its lock when it ends by itself, unless its state is nowhere.
  if (!base::file_exists(folder.lock())) return false;
  if (folder.has_saved())
    config::fail_coded(
        config::kFolderIsFree,
        "the run in '{}' has saved checkpoints, and none is in '{}' any more: restore them, name the folder "
        "that has them with checkpoint.dir, or start over with --fresh, which replaces the run",
        folder.path().string(), store.folder().string());
  std::set<base::Path> incomplete;
  for (const checkpoint::Entry& entry : store.list())
    if (!entry.complete) incomplete.insert(entry.folder);
  for (const base::Path& file : base::list_files(folder.path()))
    if (file.extension() == ".safetensors" && !incomplete.contains(file.parent_path())) return false;
  std::vector<Difference> others;
  try {
    const Recipe before = config::load(folder.recipe_file().string());
    if (config::to_toml(before) != base::read_file(folder.recipe_file())) return false;
    for (const Difference& d : differences(before, recipe))
      if (is_exact_key(d.key) || d.key == "run.steps" || d.key == "data.path") others.push_back(d);
  } catch (const base::UserError&) {
    return false;
  }
  if (others.empty()) return true;
  std::string list;
  for (const Difference& d : others)
    list += fmt::format("\n  {} is {}, {} in that run", d.key, d.now, d.saved);
  config::fail_coded(
      config::kFolderIsFree,
      "'{}' has a run that ended before its first checkpoint was complete, and this recipe is another "
      "one:{}\nRestore the recipe, and the run starts again; otherwise choose another folder with --run-dir, "
      "or replace that run with --overwrite",
      folder.path().string(), list);
}

// An absolute path without "." and without a separator at its end, so that its parent is the folder that
// it is in. Links stay as they are.
base::Path folder_itself(const base::Path& path) {
  const base::Path normal = std::filesystem::absolute(path).lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

// Whether a checkpoint is one of those in a folder, also under the name of a link to it.
bool is_in(const base::Path& checkpoint, const base::Path& folder) {
  std::error_code error;
  if (std::filesystem::equivalent(checkpoint.parent_path(), folder, error)) return true;
  const base::Path real = std::filesystem::canonical(checkpoint, error);
  return !error && std::filesystem::equivalent(real.parent_path(), folder, error);
}

// checkpoint.dir may be anywhere: one run must not continue, mix with or remove the checkpoints of another.
void require_own_store(const Recipe& recipe, const checkpoint::Store& store, const StartOptions& options) {
  const std::optional<checkpoint::Entry> newest = store.newest();
  if (recipe.checkpoint.dir.empty() || !newest) return;
  const base::Path file = newest->folder / checkpoint::kManifestFile;
  std::string other;
  try {
    other = recipe_of(checkpoint::parse_manifest(options.read(file), file.string()), file.string()).run.dir;
  } catch (const base::UserError&) {
    return;  // damaged: who loads it says so
  }
  std::error_code error;
  if (std::filesystem::equivalent(other, recipe.run.dir, error) || other == recipe.run.dir ||
      !base::file_exists(RunFolder(other).facts()))
    return;
  config::fail_coded(
      config::kFolderIsFree,
      "the checkpoints in checkpoint.dir = \"{}\" are those of the run in '{}', and this run's "
      "folder is '{}': choose another checkpoint.dir, or continue that run with --run-dir {}",
      recipe.checkpoint.dir, other, recipe.run.dir, other);
}

// Where the run in the folder has its checkpoints: with another checkpoint.dir it would start again.
void require_store_of_run(const RunFolder& folder, const Recipe& recipe, const checkpoint::Store& store) {
  if (!base::file_exists(folder.recipe_file()) || !base::file_exists(folder.facts())) return;
  base::Path theirs;
  try {
    Recipe before = config::load(folder.recipe_file().string());
    before.run.dir = recipe.run.dir;
    theirs = checkpoint_folder(before);
    if (!checkpoint::Store(theirs).newest()) return;
  } catch (const base::UserError&) {
    return;  // not a run's
  }
  std::error_code error;
  if (std::filesystem::equivalent(theirs, store.folder(), error)) return;
  config::fail_coded(config::kFolderIsFree,
                     "the checkpoints of the run in '{}' are in '{}', and with this recipe they would be in "
                     "'{}': set checkpoint.dir to the folder that has them, or move them; --fresh starts "
                     "over and replaces the run",
                     folder.path().string(), theirs.string(), store.folder().string());
}

std::string place_of(const Elsewhere& e) {
  return fmt::format(
      "the state of this run after step {} is in {}, because its folder could not take it: "
      "--run-dir NEW --from {} continues from there",
      e.step, e.folder.string(), e.folder.string());
}

// The newest checkpoint has lost its manifest: going back to an older one must be asked for.
void require_manifest_of_latest(const checkpoint::Store& store) {
  const std::optional<int64_t> latest = store.latest();
  if (!latest || !base::directory_exists(store.folder_of(*latest)) ||
      base::file_exists(store.folder_of(*latest) / checkpoint::kManifestFile))
    return;
  const std::optional<checkpoint::Entry> newest = store.newest();
  base::fail_user(
      "'{}' is the latest checkpoint and has no {}: it was removed or damaged after the save. Restore it{}, "
      "or start over with --fresh, which replaces the run",
      store.folder_of(*latest).string(), checkpoint::kManifestFile,
      newest ? fmt::format(", continue from the one before with --from {}", newest->folder.string()) : "");
}

}  // namespace

bool is_exact_key(const std::string& key) {
  if (key == "model.hf") return false;  // the first weights came from there; the sizes are keys of their own
  for (const char* section : {"model.", "precision.", "optimizer."})
    if (key.starts_with(section)) return true;
  for (const char* one :
       {"batch.global", "batch.ramp", "run.seed", "run.skip_spike.window", "run.skip_spike.factor"})
    if (key == one) return true;
  return key.starts_with("data.") && key != "data.path";  // the data themselves are compared
}

std::vector<std::string> changed_exact_keys(const Recipe& saved, const Recipe& now) {
  std::vector<std::string> keys;
  for (const Difference& d : differences(saved, now))
    if (is_exact_key(d.key)) keys.push_back(d.key);
  return keys;
}

Start plan_start(Recipe& recipe, const StartOptions& options) {
  require_known_keys(options.allow);
  if (options.from.empty())
    for (const auto& [given, what] :
         {std::pair{options.weights_only, "--weights-only"}, std::pair{options.step.has_value(), "--step"},
          std::pair{!options.load.empty(), "--load"}})
      if (given) base::fail_user("{} needs --from CHECKPOINT, which has the weights", what);
  const RunFolder folder(recipe.run.dir);
  base::Path nearest = folder.path();  // that exists
  std::error_code error;
  while (!std::filesystem::exists(nearest, error) && nearest.has_relative_path())
    nearest = nearest.parent_path();
  if (!base::directory_exists(nearest) && std::filesystem::exists(nearest, error))
    config::fail_coded(
        config::kFolderIsFree, "the run folder '{}'{} is a file: choose another folder with --run-dir",
        folder.path().string(),
        nearest == folder.path() ? "" : fmt::format(" cannot be created: '{}'", nearest.string()));
  folder.require_only_files();
  const checkpoint::Store store(checkpoint_folder(recipe));
  const base::Path from =
      options.from.empty() ? base::Path() : folder_itself(find_checkpoint(options.from, options.step));
  const bool is_own = !from.empty() && is_in(from, store.folder());
  if (options.overwrite) {
    require_own_store(recipe, store, options);
    if (is_own)
      base::fail_user("--fresh would remove {}, which --from names: choose another folder with --run-dir",
                      from.string());
    if (!from.empty()) return continue_from(recipe, options, from, Existing::Replace);
    require_tokens_of_folder(recipe, options);
    return {.existing = Existing::Replace};
  }
  require_own_store(recipe, store, options);
  const std::optional<checkpoint::Entry> own = store.newest();
  if (is_own && !options.weights_only) return continue_from(recipe, options, from, Existing::Continue);
  require_manifest_of_latest(store);
  if (own) {
    StartOptions newest = options;
    newest.weights_only = false;
    newest.load.clear();
    Start start = continue_from(recipe, newest, own->folder, Existing::Continue);
    start.newest = own->step;
    if (!from.empty()) start.lines.push_back("--from has no effect: the run has a checkpoint of its own");
    if (const auto later = find_elsewhere(recipe, own->step))
      start.lines.push_back("warning: " + place_of(*later));
    return start;
  }
  require_store_of_run(folder, recipe, store);
  const bool killed = was_killed_early(folder, store, recipe);
  const Existing existing = killed ? Existing::Replace : Existing::Refuse;
  const std::optional<Elsewhere> elsewhere = from.empty() ? find_elsewhere(recipe, -1) : std::nullopt;
  if (!killed && elsewhere && base::file_exists(folder.facts()))
    config::fail_coded(config::kFolderIsFree, "{}. --fresh starts over and replaces the run in '{}'",
                       place_of(*elsewhere), folder.path().string());
  folder.require_free(existing);
  Start start{.existing = existing};
  if (from.empty()) require_tokens_of_folder(recipe, options);
  if (!from.empty()) start = continue_from(recipe, options, from, existing);
  if (killed)
    start.lines.push_back(fmt::format(
        "the run in {} ended before its first checkpoint was complete: it starts again", recipe.run.dir));
  if (elsewhere) start.lines.push_back("warning: " + place_of(*elsewhere));
  return start;
}

base::Path find_store(const base::Path& path) {
  for (const base::Path& folder : {path, path / checkpoint::kStoreFolder})
    if (!checkpoint::Store(folder).list().empty()) return folder;
  const RunFolder run(path);
  if (!base::file_exists(run.recipe_file())) return {};
  Recipe recipe = config::load(run.recipe_file().string());
  recipe.run.dir = path.string();
  const base::Path folder = checkpoint_folder(recipe);
  return checkpoint::Store(folder).list().empty() ? base::Path() : folder;
}

base::Path find_checkpoint(const base::Path& path, std::optional<int64_t> step) {
  const bool is_one = base::file_exists(path / checkpoint::kManifestFile) || base::file_exists(path);
  const base::Path store = is_one ? base::Path() : find_store(path);
  return checkpoint::find_checkpoint(store.empty() ? path : store, step);
}

Recipe recipe_of(const checkpoint::Manifest& manifest, const std::string& source) {
  return config::parse(parse_run_state(manifest.run, source).recipe, {}, source);
}

void refuse_damaged(const base::UserError& error, const base::Path& folder) {
  const auto older = checkpoint::find_older(folder);
  const std::string advice =
      older ? fmt::format(
                  "The newest older checkpoint that is not damaged is {} ({}). To continue from it, run the "
                  "same command once with --from {}, which sets later checkpoints aside",
                  older->entry.folder.string(),
                  older->verified ? "every checksum was compared"
                                  : "its manifest and the sizes and headers of its files were checked; "
                                    "'quintet checkpoint verify' reads all of it",
                  older->entry.folder.string())
            : fmt::format("'{}' has no older checkpoint that is not damaged", folder.parent_path().string());
  throw base::UserError(fmt::format("{}\n{}", base::without_code(error.what()), advice), error.code());
}

DataIdentity identity_of(const RunData& data) {
  const data::Mixture& mixture = data.train.mixture();
  base::Checksum sum;
  for (int64_t i = 0; i < mixture.sets(); ++i) {
    const uint64_t one = mixture.set(i).fingerprint();
    sum.add(std::as_bytes(std::span(&one, 1)));
  }
  return {
      .tokens = mixture.tokens(),
      .documents = mixture.documents(),
      .samples = mixture.samples(),
      .fingerprint = checkpoint::sum_text(mixture.sets() == 1 ? mixture.set(0).fingerprint() : sum.value())};
}

void require_same_data(const Start& start, const DataIdentity& now) {
  if (!start.state || !start.check_data) return;
  const DataIdentity& saved = start.state->data;
  if (now == saved) return;
  base::fail_user(
      "the data have changed since {} was saved: now {} tokens in {} ({}), then {} in {} ({}). Restore "
      "them, continue anyway with --allow data.path, or start over with --fresh, which replaces the "
      "run",
      start.checkpoint.string(), base::thousands(now.tokens), base::counted(now.documents, "document"),
      now.fingerprint, base::thousands(saved.tokens), base::counted(saved.documents, "document"),
      saved.fingerprint);
}

int64_t skipped_in_row(const RunState& state) {
  const auto found = state.scalars.find(std::string(program::scalars::kSkippedInRow));
  return found == state.scalars.end() ? 0 : static_cast<int64_t>(found->second);
}

std::string way_back(const base::Path& folder, int64_t step) {
  std::vector<checkpoint::Entry> entries = checkpoint::Store(folder).list();
  std::reverse(entries.begin(), entries.end());
  for (const checkpoint::Entry& entry : entries) {
    if (!entry.complete || entry.step >= step) continue;
    const base::Path file = entry.folder / checkpoint::kManifestFile;
    try {
      const RunState state = parse_run_state(
          checkpoint::parse_manifest(checkpoint::read_manifest(file), file.string()).run, file.string());
      if (!is_finite(state.summary) || skipped_in_row(state) > 0) continue;
      return fmt::format(
          "The checkpoint of step {} is from before that (loss {:.4f}). To go back to it, run the same "
          "command once with --from {}, for example with a lower learning rate: --set optimizer.lr=... "
          "--allow optimizer.lr",
          entry.step, state.summary.last_loss, entry.folder.string());
    } catch (const base::UserError&) {  // a damaged one is no way back
    }
  }
  return "There is no checkpoint from before that: start over with --fresh and a lower optimizer.lr";
}

}  // namespace quintet::train
