// Starts that must not take the wrong state, and saves that must not lose the right one.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <functional>

#include "train/checkpoint_support.h"
#include "train/resume.h"

namespace quintet {
namespace {

using test::operator+;
using test::Sets;
using test::SmallRun;
using test::user_error;

const Sets kSaved = test::kOneRank + Sets{"checkpoint.every=2", "checkpoint.keep=9"};

base::Path step_folder(const SmallRun& run, int step) {
  return run / fmt::format("run/checkpoints/step-{:08}", step);
}

// A shell completes a folder with a slash, and a link is the folder that it names.
TEST(Start, AnOwnCheckpointIsRecognisedHoweverItIsSpelled) {
  const SmallRun small;
  small.train(kSaved);
  std::filesystem::create_directory_symlink(step_folder(small, 4), small / "link");
  for (const base::Path& from :
       {step_folder(small, 4), step_folder(small, 4) / "", small / "run/../run/checkpoints/step-00000004",
        small / "link", small / "link/", step_folder(small, 4) / "manifest.json"}) {
    SCOPED_TRACE(from);
    config::Recipe recipe = small.recipe(kSaved);
    EXPECT_EQ(train::plan_start(recipe, {.from = from, .allow = {}}).step(), 4);
    EXPECT_CONTAINS(
        user_error([&] { train::plan_start(recipe, {.overwrite = true, .from = from, .allow = {}}); }),
        "--fresh would remove");
  }
}

TEST(Start, AFolderInsideACheckpointStaysWhenItIsPruned) {
  const SmallRun small;
  const Sets sets = test::kOneRank + Sets{"checkpoint.every=1", "checkpoint.keep=2"};
  train::RunOptions options;
  options.on_step = [&](int64_t step, const train::StepResult&) {
    const base::Path first = step_folder(small, 1);
    if (step == 2 && base::directory_exists(first)) base::write_file_atomically(first / "notes.txt", "mine");
  };
  EXPECT_EQ(small.train(sets, options).summary.end, train::RunEnd::Finished);
  const auto newest = checkpoint::Store(small / "run/checkpoints").newest();
  ASSERT_TRUE(newest);
  EXPECT_EQ(newest->step, 6);
  for (const auto& entry : checkpoint::Store(small / "run/checkpoints").list())
    EXPECT_EQ(entry.complete, entry.step > 4) << entry.folder;
}

// A run that continued opened the pipe and waited for a reader, and a signal did not end that.
TEST(Start, APipeUnderANameOfTheRunIsRefusedHoweverItStarts) {
  const SmallRun small;
  small.train(kSaved);
  const train::RunFolder folder = small.run_folder();
  for (const base::Path& file : {folder.metrics(), folder.summary(), folder.report(), folder.lock()}) {
    SCOPED_TRACE(file);
    const std::string text = base::file_exists(file) ? base::read_file(file) : "";
    base::remove_file(file);
    ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
    for (const bool overwrite : {false, true}) {
      config::Recipe recipe = small.recipe(kSaved + Sets{"run.steps=8"});
      EXPECT_CONTAINS(user_error([&] { train::plan_start(recipe, {.overwrite = overwrite, .allow = {}}); }),
                      file.string() + "' is a pipe");
    }
    EXPECT_TRUE(std::filesystem::is_fifo(file));
    base::remove_file(file);
    if (!text.empty()) base::write_file_atomically(file, text);
  }
  EXPECT_EQ(small.train(kSaved + Sets{"run.steps=8"}).summary.steps, 8);
}

TEST(Start, ALatestCheckpointWithoutItsManifestIsNotPassedOver) {
  const SmallRun small;
  small.train(kSaved);
  base::remove_file(step_folder(small, 6) / "manifest.json");
  const Sets longer = kSaved + Sets{"run.steps=8"};
  const std::string message = user_error([&] { small.train(longer); });
  EXPECT_CONTAINS(message, "step-00000006' is the latest checkpoint and has no manifest.json");
  EXPECT_CONTAINS(message, "--from " + step_folder(small, 4).string());
  EXPECT_TRUE(base::file_exists(step_folder(small, 6) / "rank-00000.safetensors"));
  train::RunOptions options;
  options.from = step_folder(small, 4);
  EXPECT_EQ(small.train(longer, options).summary.steps, 8);
}

TEST(Start, AManifestWithoutTheStatesOfTheStepIsRefused) {
  const SmallRun small;
  small.train(kSaved);
  const base::Path file = step_folder(small, 6) / "manifest.json";
  const std::string text = base::read_file(file);
  const auto refused = [&](const std::function<void(checkpoint::Json&)>& change) {
    checkpoint::Manifest m = checkpoint::parse_manifest(text, "test");
    change(m.run);
    base::write_file_atomically(file, to_text(m));
    return user_error([&] { small.train(kSaved + Sets{"run.steps=8"}); });
  };
  EXPECT_CONTAINS(refused([](checkpoint::Json& run) { run.at("scalars").erase("update_count"); }),
                  "no usable value of the state update_count");
  EXPECT_CONTAINS(refused([](checkpoint::Json& run) { run.at("sequences") = 47; }),
                  "47 sequences after step 6, where this recipe has read 48");
}

// A manifest may come from anywhere: values that no run has are refused before they are used.
TEST(Start, ImpossibleValuesOfTheStateAreRefused) {
  const SmallRun small;
  small.train(kSaved +
              Sets{"run.skip_spike.window=2", "run.noise_scale_every=2", "eval.every=6", "eval.batches=1"});
  const checkpoint::Manifest m = checkpoint::Reader(step_folder(small, 6)).manifest();
  EXPECT_NO_THROW(train::parse_run_state(m.run, "the file"));
  using checkpoint::Json;
  const auto big = uint64_t{1} << 63;
  const std::vector<std::pair<std::string, std::function<void(Json&)>>> bad = {
      {"schedule_steps", [](Json& run) { run["schedule_steps"] = 0; }},
      {"schedule_steps", [](Json& run) { run["schedule_steps"] = -5; }},
      {"schedule_steps", [](Json& run) { run["schedule_steps"] = int64_t{1} << 62; }},
      {"schedule_steps", [&](Json& run) { run["schedule_steps"] = big; }},
      {"schedule_steps", [](Json& run) { run["schedule_steps"] = 12.5; }},
      {"step", [](Json& run) { run["step"] = -1; }},
      {"sequences", [](Json& run) { run["sequences"] = -48; }},
      {"sequences", [&](Json& run) { run["sequences"] = big; }},
      {"loss_scale", [](Json& run) { run["scalars"]["loss_scale"] = -1; }},
      {"loss_scale", [](Json& run) { run["scalars"]["loss_scale"] = "nan"; }},
      {"update_count", [](Json& run) { run["scalars"]["update_count"] = -1; }},
      {"update_count", [](Json& run) { run["scalars"]["update_count"] = 1e300; }},
      {"skipped_in_row", [](Json& run) { run["scalars"]["skipped_in_row"] = "nan"; }},
      {"skipped_total", [](Json& run) { run["scalars"]["skipped_total"] = 0.5; }},
      {"spikes", [](Json& run) { run["spikes"].at(0).at(0) = -1; }},
      {"spikes", [](Json& run) { run["spikes"].at(0).at(0) = 6; }},
      {"spikes", [](Json& run) { run["spikes"].at(1) = run["spikes"].at(0); }},
      {"spikes", [](Json& run) { run["spikes"].at(0).at(1) = "nan"; }},
      {"spikes", [](Json& run) { run["spikes"].at(0).at(2) = -1; }},
      {"skipped_total", [](Json& run) { run["scalars"]["skipped_total"] = 7; }},
      {"update_count", [](Json& run) { run["scalars"]["update_count"] = 7; }},
      {"noise", [](Json& run) { run["noise"].at(0) = -5; }},
      {"noise", [](Json& run) { run["noise"].at(0) = 7; }},
      {"noise", [](Json& run) { run["noise"].at(0) = 0; }},
      {"noise", [](Json& run) { run["noise"].at(1) = "inf"; }},
      {"noise", [](Json& run) { run["noise"].at(2) = "nan"; }},
      {"noise", [](Json& run) { run["noise"].at(3) = 0; }},
      {"noise", [](Json& run) { run["noise"].at(3) = 1.5; }},
      {"tokens", [](Json& run) { run["summary"]["tokens"] = -1; }},
      {"seconds", [](Json& run) { run["summary"]["seconds"] = "nan"; }},
      {"seconds", [](Json& run) { run["summary"]["seconds"] = -1; }},
      {"tokens_per_s", [](Json& run) { run["summary"]["tokens_per_s"] = "inf"; }},
      {"timed_seconds", [](Json& run) { run["summary"]["timed_seconds"] = 1e300; }},
      {"timed_tokens",
       [](Json& run) { run["summary"]["timed_tokens"] = run["summary"]["tokens"].get<int64_t>() + 1; }},
      {"evaluations", [](Json& run) { run["summary"]["evaluations"].at(0).at(0) = 7; }},
      {"skipped_steps", [](Json& run) { run["summary"]["skipped_steps"] = 7; }},
      {"skipped_steps", [&](Json& run) { run["summary"]["skipped_steps"] = big; }},
      {"timed_tokens", [](Json& run) { run["summary"]["timed_tokens"] = -1; }},
      {"evaluations", [](Json& run) { run["summary"]["evaluations"].at(0).at(2) = -1; }},
      {"tokens", [&](Json& run) { run["data"]["tokens"] = big; }},
      {"documents", [](Json& run) { run["data"]["documents"] = -1; }},
      {"samples", [](Json& run) { run["data"]["samples"] = -1; }},
  };
  for (const auto& [name, change] : bad) {
    Json run = m.run;
    change(run);
    const std::string message = user_error([&] { train::parse_run_state(run, "the file"); });
    EXPECT_CONTAINS(message, "the file: \"" + name + "\" in the state of the run must be");
  }
}

// Two runs with one checkpoint.dir would continue, or remove, the checkpoints of each other.
TEST(Start, CheckpointsOfAnotherRunAreNotTaken) {
  const SmallRun first, second;
  const Sets shared = kSaved + Sets{"checkpoint.dir=\"" + (first / "shared").string() + "\""};
  first.train(shared);
  train::RunOptions fresh;
  fresh.overwrite = true;
  for (const train::RunOptions& options : {train::RunOptions(), fresh})
    EXPECT_CONTAINS(user_error([&] { second.train(shared, options); }),
                    "are those of the run in '" + first.run_dir().string() + "'");
  EXPECT_EQ(first.train(shared + Sets{"run.steps=8"}).summary.steps, 8);
}

// Another checkpoint.dir must not hide the checkpoints of a run that was killed: it would start again.
TEST(Start, CheckpointsInAnotherFolderAreNotPassedOver) {
  for (const bool named : {false, true}) {
    SCOPED_TRACE(named);
    const SmallRun small;
    const Sets dir = {"checkpoint.dir=\"" + (small / "other").string() + "\""};
    small.train(named ? kSaved + dir : kSaved);
    base::remove_file(small.run_folder().summary());
    base::write_file_atomically(small.run_folder().lock(), "quintet lock: process 1");  // as if killed
    const Sets now = (named ? kSaved : kSaved + dir) + Sets{"run.steps=8"};
    const std::string theirs = (named ? small / "other" : small / "run/checkpoints").string();
    EXPECT_CONTAINS(
        user_error([&] { small.train(now); }),
        "the checkpoints of the run in '" + small.run_dir().string() + "' are in '" + theirs + "'");
    EXPECT_EQ(test::read_metrics(small.run_folder().metrics()).size(), 6u);
    EXPECT_EQ(small.train((named ? kSaved + dir : kSaved) + Sets{"run.steps=8"}).summary.steps, 8);
  }
}

// checkpoint.dir may be the run folder itself, which is locked once.
TEST(Start, TheRunFolderMayHaveTheCheckpointsItself) {
  const SmallRun small;
  const Sets sets = kSaved + Sets{"checkpoint.dir=\"" + small.run_dir().string() + "\""};
  EXPECT_EQ(small.train(sets).summary.steps, 6);
  EXPECT_EQ(small.train(sets + Sets{"run.steps=8"}).summary.steps, 8);
  EXPECT_TRUE(base::file_exists(small / "run/step-00000008/manifest.json"));
}

// A folder that was renamed to another step would be set aside by the run that continues it.
TEST(Start, ACheckpointUnderTheNameOfAnotherStepIsRefused) {
  const SmallRun small;
  small.train(kSaved);
  std::filesystem::rename(step_folder(small, 6), step_folder(small, 9));
  const Sets longer = kSaved + Sets{"run.steps=12"};
  EXPECT_CONTAINS(
      user_error([&] { small.train(longer); }),
      "step-00000009' is the checkpoint of step 6: a folder of that name must have that of step 9");
  EXPECT_TRUE(base::directory_exists(step_folder(small, 9)));
  std::filesystem::rename(step_folder(small, 9), step_folder(small, 6));
  EXPECT_EQ(small.train(longer).summary.steps, 12);
}

// A file that is larger than any manifest is not read: here it has no blocks.
TEST(Start, AManifestThatWouldFillTheMemoryIsRefused) {
  const SmallRun small;
  small.train(kSaved);
  const base::Path file = step_folder(small, 6) / "manifest.json";
  std::filesystem::resize_file(file, uint64_t{1} << 42);
  EXPECT_CONTAINS(user_error([&] { small.train(kSaved + Sets{"run.steps=8"}); }), "is not a manifest");
  EXPECT_CONTAINS(user_error([&] { checkpoint::Reader reader(step_folder(small, 6)); }), "at most");
}

// A process that was killed in the middle of a write leaves a file under another name.
TEST(Start, WhatKilledStartsLeaveIsRemoved) {
  const SmallRun small;
  small.train(kSaved);
  const base::Path store = small / "run/checkpoints";
  const std::vector<base::Path> left = {store / ".seen-17", store / ".seen-17.5.0.partial",
                                        store / "probe.5.0.partial", small / "run/probe.5.0.partial",
                                        small / "run/metrics.jsonl.5.1.partial"},
                                others = {store / ".seen-by-me", small / "run/thesis.partial"};
  for (const base::Path& file : left) base::write_file_atomically(file, "");
  for (const base::Path& file : others) base::write_file_atomically(file, "mine");
  EXPECT_EQ(small.train(kSaved + Sets{"run.steps=8"}).summary.steps, 8);
  for (const base::Path& file : left) EXPECT_FALSE(base::file_exists(file)) << file;
  for (const base::Path& file : others) EXPECT_EQ(base::read_file(file), "mine") << file;
}

// The pointer is for scripts: it names the newest checkpoint also after a kill before it was written.
TEST(Start, ALatestPointerThatIsBehindIsMended) {
  const SmallRun small;
  small.train(kSaved);
  const base::Path latest = small / "run/checkpoints/latest";
  base::write_file_atomically(latest, "step-00000004\n");
  small.train(kSaved);
  EXPECT_EQ(base::read_file(latest), "step-00000006\n");
  base::remove_file(latest);
  small.train(kSaved);
  EXPECT_EQ(base::read_file(latest), "step-00000006\n");
}

TEST(Start, ACompleteRunIsLeftAsItIs) {
  const SmallRun small;
  small.train({"checkpoint.every=2"});
  const std::string recipe = base::read_file(small.run_folder().recipe_file()),
                    facts = base::read_file(small.run_folder().facts()),
                    summary = base::read_file(small.run_folder().summary());
  small.train(kSaved);  // in another layout
  EXPECT_EQ(base::read_file(small.run_folder().recipe_file()), recipe);
  EXPECT_EQ(base::read_file(small.run_folder().facts()), facts);
  EXPECT_EQ(base::read_file(small.run_folder().summary()), summary);
}

}  // namespace
}  // namespace quintet
