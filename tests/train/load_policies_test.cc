// Loading what fits only in part, and the state that a run leaves.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <random>
#include <thread>

#include "base/clock.h"
#include "base/failure_rate.h"
#include "train/checkpoint_support.h"
#include "train/resume.h"

namespace quintet {
namespace {

using test::corpus;
using test::operator+;
using test::QuickFiles;
using test::recipe_of;
using test::run_steps;
using test::Sets;
using test::SmallRun;
using test::tensors_of;
using test::user_error;

// A checkpoint of two steps with these settings.
base::Path saved_with(const test::TempFolder& folder, const Sets& sets) {
  run_steps(recipe_of(sets), corpus(), folder / "saved", 0, 2, {});
  return checkpoint::Store(folder / "saved").folder_of(2);
}

// The tensors of a run of other settings after loading, and the notes for the user.
struct Loaded {
  std::map<std::string, std::string> tensors, fresh;  // fresh: of the same run without loading
  std::vector<std::string> notes;
};
Loaded load_with(const base::Path& from, const Sets& sets, const train::LoadOptions& options) {
  const test::TempFolder folder;
  const config::Recipe recipe = recipe_of(sets + Sets{"run.seed=99"});
  Loaded out;
  QuickFiles files;
  for (const bool loads : {true, false}) {
    config::Recipe here = recipe;
    here.checkpoint.dir = (folder / (loads ? "loaded" : "fresh")).string();
    comm::run_local_world(static_cast<int>(here.parallel.world()), [&](comm::World& world) {
      train::Rank rank(here, world, {.draw = !loads});
      checkpoint::Reader reader(from);
      if (loads) {
        std::vector<std::string> notes = train::load_state(rank, reader, options);
        if (world.rank().value == 0) out.notes = std::move(notes);
      }
      train::Checkpointer(
          rank, world, here, [] { return to_json(train::RunState{}); }, [](const std::string&) {}, files)
          .save(0);
    });
    (loads ? out.tensors : out.fresh) = tensors_of(here.checkpoint.dir);
  }
  return out;
}
std::string refusal(const base::Path& from, const Sets& sets, const train::LoadOptions& options) {
  return user_error([&] { load_with(from, sets, options); });
}
train::LoadOptions with_rules(const Sets& rules, bool weights_only = false) {
  train::LoadOptions options{.weights_only = weights_only};
  for (const std::string& rule : rules) options.rules.push_back(train::parse_load_rule(rule));
  return options;
}

TEST(LoadPolicies, WhatOnlyOneSideHasIsRefusedAllAtOnce) {
  const test::TempFolder folder;
  const base::Path saved = saved_with(folder, {"model.vocab=256"});
  const std::string message =
      refusal(saved, {"model.layers=3", "model.vocab=300", "optimizer.name=\"lion\""}, {});
  EXPECT_CONTAINS(message, "it lacks ");
  EXPECT_CONTAINS(message, "/lion.");
  EXPECT_CONTAINS(message, "embed.weight has shape [256, 16], and this recipe needs [300, 16]");
  EXPECT_CONTAINS(message, "this recipe has no place for ");
  EXPECT_CONTAINS(message, "/adamw.");
  EXPECT_CONTAINS(message, "PATTERN=fresh");
  EXPECT_CONTAINS(message, "PATTERN=ignore");
  // Another optimizer alone: the weights may be enough.
  EXPECT_CONTAINS(refusal(saved, {"optimizer.name=\"lion\""}, {}), "--weights-only");
  // A block less is left out only when asked.
  EXPECT_CONTAINS(refusal(saved, {"model.layers=1"}, {.weights_only = true}),
                  "no place for 9 tensors of it: blocks.1.");
}

TEST(LoadPolicies, FreshTensorsAreThoseOfANewRun) {
  const test::TempFolder folder;
  const base::Path saved = saved_with(folder, {"model.vocab=256"});
  const auto before = tensors_of(saved);
  const Sets other = {"model.vocab=300", "model.layers=3", "parallel.pp=3", "parallel.dp_shard=2",
                      "parallel.zero=1"};
  const Loaded loaded =
      load_with(saved, other, with_rules({"embed.*=fresh", "head.*=fresh", "blocks.2.*=fresh"}));
  for (const auto& [name, bytes] : loaded.tensors) {
    const bool is_fresh =
        name.starts_with("embed.") || name.starts_with("head.") || name.starts_with("blocks.2.");
    EXPECT_TRUE(bytes == (is_fresh ? loaded.fresh : before).at(name)) << name;
  }
  ASSERT_EQ(loaded.notes.size(), 3u);
  EXPECT_CONTAINS(loaded.notes[0], "initialised, not loaded: 3 tensors embed.weight, ");
  EXPECT_CONTAINS(loaded.notes[0], "(embed.*=fresh)");
}

TEST(LoadPolicies, IgnoredTensorsAreLeftOut) {
  const test::TempFolder folder;
  const base::Path saved = saved_with(folder, {"optimizer.ema=0.9"});
  const auto before = tensors_of(saved);
  EXPECT_CONTAINS(refusal(saved, {}, {}), "no place for ");
  const Loaded loaded = load_with(saved, {}, with_rules({"*/ema=ignore"}));
  EXPECT_LT(loaded.tensors.size(), before.size());
  for (const auto& [name, bytes] : loaded.tensors) EXPECT_TRUE(bytes == before.at(name)) << name;
  ASSERT_EQ(loaded.notes.size(), 1u);
  EXPECT_CONTAINS(loaded.notes[0], "left out of the checkpoint: ");
  // A rule that applies to nothing is a typing error.
  EXPECT_CONTAINS(refusal(saved, {"optimizer.ema=0.9"}, with_rules({"*/eam=ignore"})),
                  "--load */eam=ignore: of the checkpoint's tensors");
  EXPECT_CONTAINS(refusal(saved, {"optimizer.ema=0.9"}, with_rules({"haed.*=fresh"})), "no such tensor");
  for (const char* bad : {"head.*", "=fresh", "head.*=keep", ""})
    EXPECT_CONTAINS(user_error([&] { train::parse_load_rule(bad); }), "PATTERN=fresh");
}

// A checkpoint in f64 becomes f32 masters; the notes say so.
TEST(LoadPolicies, OtherFloatingTypesAreConverted) {
  const test::TempFolder folder;
  const base::Path saved = saved_with(folder, {});
  const Loaded loaded = load_with(saved, {"precision.compute=\"bf16\"", "precision.master=\"f32\""}, {});
  const auto before = tensors_of(saved);
  for (const auto& [name, bytes] : loaded.tensors) {
    const std::string& wide = before.at(name);
    ASSERT_EQ(2 * bytes.size(), wide.size()) << name;
    for (size_t i = 0; 4 * i < bytes.size(); ++i) {
      double x = 0;
      float y = 0;
      std::memcpy(&x, wide.data() + 8 * i, 8), std::memcpy(&y, bytes.data() + 4 * i, 4);
      ASSERT_EQ(static_cast<float>(x), y) << name;
    }
  }
  ASSERT_EQ(loaded.notes.size(), 1u);
  EXPECT_CONTAINS(loaded.notes[0], "converted from f64 to f32");
}

TEST(LoadPolicies, AveragesBecomeTheWeights) {
  const test::TempFolder folder;
  const Sets sets = {"optimizer.ema=0.5", "optimizer.groups=[{match=\"*attn*\", update=false}]"};
  const base::Path saved = saved_with(folder, sets);
  const auto before = tensors_of(saved);
  const Loaded loaded = load_with(saved, sets, {.weights_only = true, .averages = true});
  int frozen = 0;
  for (const auto& [name, bytes] : loaded.tensors) {
    if (checkpoint::is_state_name(name)) continue;
    const bool is_frozen = name.find("attn") != std::string::npos;
    frozen += is_frozen;
    EXPECT_TRUE(bytes == before.at(is_frozen ? name : name + "/ema")) << name;
    if (!is_frozen) {
      EXPECT_TRUE(bytes != before.at(name)) << name;
      EXPECT_TRUE(loaded.tensors.at(name + "/ema") == bytes) << name << ": averages begin as the weights";
    }
  }
  EXPECT_GT(frozen, 0);
}

TEST(LoadPolicies, ARunStartsFromAStepWithRules) {
  const SmallRun first, second;
  first.train({"checkpoint.every=2", "checkpoint.keep=3"});
  train::RunOptions options;
  options.from = first.run_dir();
  options.from_step = 4;
  options.load = {"final_norm.*=fresh"};
  EXPECT_EQ(second.train({}, options).summary.steps, 6);
  EXPECT_EQ(test::read_metrics(second.run_folder().metrics()).size(), 2u) << "of steps 5 and 6";
  options.from_step = 3;
  EXPECT_CONTAINS(user_error([&] { SmallRun().train({}, options); }), "it has those of steps 2, 4, 6");
  options.from.clear();
  EXPECT_CONTAINS(user_error([&] { SmallRun().train({}, options); }), "needs --from");
  // What does not fit is found before anything is replaced.
  options = {};
  options.overwrite = true;
  options.from = first.run_dir();
  options.allow = {"model"};
  EXPECT_CONTAINS(user_error([&] { second.train({"model.ffn=128"}, options); }), "has shape");
  EXPECT_EQ(test::read_metrics(second.run_folder().metrics()).size(), 2u);
  EXPECT_EQ(checkpoint::Store(second / "run/checkpoints").newest()->step, 6);
}

// ---- the state that a run leaves

TEST(LastState, EveryRunLeavesACheckpoint) {
  const SmallRun small;
  small.train();
  const auto newest = checkpoint::Store(small / "run/checkpoints").newest();
  ASSERT_TRUE(newest);
  EXPECT_EQ(newest->step, 6);
  checkpoint::Reader(newest->folder).verify();
  EXPECT_TRUE(tensors_of(small.run_dir()).contains("embed.weight/adamw.m"));
  // Longer by two steps, in another layout.
  EXPECT_EQ(small.train(Sets{"run.steps=8", "parallel.zero=1"}).summary.steps, 8);
}

TEST(LastState, EveryLayoutBeginsWithTheSameWeights) {
  const test::TempFolder folder;
  std::map<std::string, std::string> one;
  const std::vector<Sets> layouts = {{},
                                     {"parallel.dp_shard=4", "parallel.zero=3"},
                                     {"parallel.tp=4", "parallel.dp_shard=2", "parallel.zero=1"},
                                     {"parallel.pp=2", "parallel.cp=2"}};
  for (size_t i = 0; i < layouts.size(); ++i) {
    const base::Path store = folder / std::to_string(i);
    run_steps(recipe_of(layouts[i]), corpus(), store, 0, 0, {});
    if (i == 0) one = tensors_of(store);
    ASSERT_TRUE(one.contains("blocks.1.ffn.down.weight"));
    EXPECT_TRUE(tensors_of(store) == one) << i;
  }
}

TEST(LastState, FrozenWeightsStayAsTheyWere) {
  const test::TempFolder folder;
  const Sets freeze = {
      "parallel.dp_shard=2", "parallel.zero=3",
      "optimizer.groups=[{match=\"embed.*\", update=false}, {match=\"blocks.0.*\", update=false}]"};
  run_steps(recipe_of(freeze), corpus(), folder / "a", 0, 0, {});
  run_steps(recipe_of(freeze), corpus(), folder / "b", 0, 2, {});
  const auto before = tensors_of(folder / "a"), after = tensors_of(folder / "b");
  int frozen = 0, trained = 0;
  for (const auto& [name, bytes] : before) {
    const bool is_frozen = name.starts_with("embed.") || name.starts_with("blocks.0.");
    EXPECT_EQ(bytes == after.at(name), is_frozen) << name;
    ++(is_frozen ? frozen : trained);
  }
  EXPECT_EQ(frozen, 10) << "the table and 9 tensors of a block";
  EXPECT_GE(trained, 11) << "as many of another block, the last norm and the head";
}

// A run that diverged removes no older checkpoint.
TEST(LastState, ADivergedRunKeepsOlderCheckpoints) {
  const SmallRun small;
  const train::RunResult result =
      small.train({"optimizer.lr=1e38", "optimizer.clip_norm=0", "optimizer.weight_decay=0",
                   "run.max_skipped_steps=3", "run.steps=50", "checkpoint.every=1", "checkpoint.keep=1"});
  EXPECT_EQ(result.summary.end, train::RunEnd::NonFinite);
  EXPECT_GE(checkpoint::Store(small / "run/checkpoints").list().size(), 2u);
}

// Step 5 destroys the weights, and all after it are skipped. Of their checkpoints only the newest stays,
// those from before are kept, and both the end of the run and its continuation name the last good one.
TEST(LastState, ADivergedRunNamesTheWayBack) {
  const SmallRun small;
  const std::vector<std::string> good = {"run.steps=4", "checkpoint.every=2", "optimizer.clip_norm=0",
                                         "optimizer.weight_decay=0"};
  std::vector<std::string> bad = good;
  bad.insert(bad.end(),
             {"run.steps=50", "checkpoint.every=1", "optimizer.lr=1e38", "run.max_skipped_steps=3"});
  small.train(good);
  const base::Path store = small / "run/checkpoints";
  const std::string way = "--from " + (store / "step-00000004").string();
  train::RunOptions allowed;
  allowed.allow = {"optimizer"};
  for (int n = 0; n < 3; ++n) {
    const train::RunResult result = small.train(bad, allowed);
    EXPECT_EQ(result.summary.end, train::RunEnd::NonFinite);
    EXPECT_CONTAINS(result.message, "The checkpoint of step 4 is from before that (loss ");
    EXPECT_CONTAINS(result.message, way);
    std::vector<int64_t> good_steps, others;
    for (const checkpoint::Entry& entry : checkpoint::Store(store).list())
      (entry.step <= 5 ? good_steps : others).push_back(entry.step);
    EXPECT_EQ(good_steps, (std::vector<int64_t>{4, 5}));
    EXPECT_EQ(others, std::vector<int64_t>{result.summary.steps});
  }
  config::Recipe recipe = small.recipe(bad);
  const std::vector<std::string> lines = train::plan_start(recipe, {.allow = {"optimizer"}}).lines;
  EXPECT_CONTAINS(fmt::format("{}", fmt::join(lines, "\n")),
                  "warning: the last 5 steps before this checkpoint were ");
  EXPECT_CONTAINS(fmt::format("{}", fmt::join(lines, "\n")), way);
  // Going back works.
  train::RunOptions back;
  back.from = store / "step-00000004";
  std::vector<std::string> longer = good;
  longer.push_back("run.steps=6");
  EXPECT_EQ(small.train(longer, back).summary.end, train::RunEnd::Finished);
}

TEST(LastState, GoesElsewhereWhenTheFolderCannotTakeIt) {
  for (const char* every : {"checkpoint.every=0", "checkpoint.every=100"}) {
    const SmallRun small;
    train::RunOptions options;
    options.on_step = [&](int64_t step, const train::StepResult&) {
      if (step != 2) return;
      std::filesystem::remove(small / "run/checkpoints");
      base::write_file_atomically(small / "run/checkpoints", "not a folder");
    };
    const train::RunResult result = small.train({"run.steps=2", every}, options);
    EXPECT_EQ(result.summary.end, train::RunEnd::Finished);
    EXPECT_CONTAINS(result.incomplete, "run/checkpoints");
    const std::string marker = "the last checkpoint is in ";
    const size_t at = result.incomplete.find(marker);
    ASSERT_NE(at, std::string::npos) << result.incomplete;
    const size_t begin = at + marker.size();
    const train::RunFolder other(
        result.incomplete.substr(begin, result.incomplete.find(": --run-dir") - begin));
    checkpoint::Reader(checkpoint::find_checkpoint(other.path())).verify();
    EXPECT_TRUE(base::file_exists(other.recipe_file()));
    // The same command does not forget it: it is refused, or says what it leaves behind.
    const std::string place = fmt::format(
        "the state of this run after step 2 is in {0}, because its folder could not take it: "
        "--run-dir NEW --from {0} continues from there",
        other.path().string());
    base::remove_file(small / "run/checkpoints");
    EXPECT_CONTAINS(user_error([&] { small.train({"run.steps=2"}); }), place);
    train::RunOptions fresh;
    fresh.overwrite = true;
    small.train({"run.steps=1"}, fresh);
    config::Recipe recipe = small.recipe({"run.steps=4"});
    std::vector<std::string> lines = train::plan_start(recipe, {.allow = {}}).lines;
    EXPECT_EQ(std::count(lines.begin(), lines.end(), "warning: " + place), 1);
    small.train({"run.steps=2"});
    lines = train::plan_start(recipe, {.allow = {}}).lines;
    EXPECT_EQ(std::count(lines.begin(), lines.end(), "warning: " + place), 0) << "the run is as far";
    // Another run of this name has nothing there.
    recipe.run.dir = (small / "another").string();
    lines = train::plan_start(recipe, {.allow = {}}).lines;
    EXPECT_EQ(std::count(lines.begin(), lines.end(), "warning: " + place), 0);
    std::filesystem::remove_all(other.path());
  }
}

// A checkpoint that cannot be written during the run: training stops, and its state is saved, in the run's
// folder if that works again, otherwise elsewhere.
TEST(LastState, AFailedSaveLosesNoStep) {
  for (const bool returns : {false, true}) {
    SCOPED_TRACE(returns);
    const SmallRun whole, small;
    const std::vector<std::string> sets = {"run.steps=12", "checkpoint.every=3"};
    const base::Path store = small / "run/checkpoints";
    train::RunOptions options;
    options.on_step = [&](int64_t step, const train::StepResult&) {
      if (step == 2) std::filesystem::remove_all(store);
      if (step == 2 && returns) base::make_directories(store);
      if (step == 2) base::write_file_atomically(returns ? store / "step-00000003" : store, "not a folder");
    };
    const train::RunResult result = small.train(sets, options);
    EXPECT_EQ(result.summary.end, train::RunEnd::SaveFailed);
    EXPECT_GT(result.summary.steps, 3);
    EXPECT_LE(result.summary.steps, 6) << "the next save notices it at the latest";
    EXPECT_CONTAINS(result.message, "the checkpoint of step 3 could not be written: ");
    EXPECT_CONTAINS(result.message, "Training stopped after step ");
    EXPECT_EQ(test::read_json(small.run_folder().summary()).at("ended"), "save failed");
    EXPECT_EQ(result.incomplete.empty(), returns) << result.incomplete;
    train::RunOptions from;
    base::Path other;
    if (returns) {
      EXPECT_CONTAINS(result.message, "the same command continues");
    } else {
      const std::string marker = "the last checkpoint is in ";
      const size_t begin = result.incomplete.find(marker) + marker.size();
      other = result.incomplete.substr(begin, result.incomplete.find(": --run-dir") - begin);
      from.from = other;
    }
    whole.train(sets);
    const train::RunResult second = returns ? small.train(sets)
                                            : train::run(
                                                  [&] {
                                                    config::Recipe recipe = small.recipe(sets);
                                                    recipe.run.dir = (small / "second").string();
                                                    return recipe;
                                                  },
                                                  from);
    EXPECT_EQ(second.summary.end, train::RunEnd::Finished);
    EXPECT_TRUE(tensors_of(whole / "run/checkpoints/step-00000012") ==
                tensors_of((returns ? store : small / "second/checkpoints") / "step-00000012"));
    if (!returns) std::filesystem::remove_all(other);
  }
}

// The same of a save before a job's time limit, which is written directly where checkpoint.every is off.
TEST(LastState, AFailedSaveBeforeTheJobEndsLosesNoStep) {
  class FullOnce : public QuickFiles {
    void write(int file, const base::Path& path, int64_t at, std::span<const std::byte> bytes) override {
      if (!was_full_.exchange(true)) base::fail_writing("write", path, ENOSPC);
      FileSystem::write(file, path, at, bytes);
    }
    std::atomic<bool> was_full_ = false;
  } files;
  const SmallRun small;
  train::RunOptions options;
  options.files = &files;
  ASSERT_EQ(::setenv("SLURM_JOB_END_TIME", fmt::format("{}", base::wall_seconds() + 20).c_str(), 1), 0);
  const train::RunResult result = small.train({}, options);
  ::unsetenv("SLURM_JOB_END_TIME");
  EXPECT_EQ(result.summary.end, train::RunEnd::SaveFailed);
  EXPECT_CONTAINS(result.message, "No space left");
  const auto newest = checkpoint::Store(small / "run/checkpoints").newest();
  ASSERT_TRUE(newest);
  EXPECT_EQ(newest->step, result.summary.steps);
  EXPECT_CONTAINS(result.message, "whose state is in " + newest->folder.string());
  checkpoint::Reader(newest->folder).verify();
}

}  // namespace
}  // namespace quintet
