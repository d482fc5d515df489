// Continuing runs, exactly or not at all.
#include "train/resume.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <random>
#include <thread>

#include "base/clock.h"
#include "base/failure_rate.h"
#include "train/checkpoint_support.h"
#include "train/same_bits.h"

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

std::vector<std::string> lines_of_run(const SmallRun& small, const Sets& sets,
                                      train::RunOptions options = {}) {
  config::Recipe recipe = small.recipe(sets);
  return train::plan_start(recipe, {.overwrite = options.overwrite,
                                    .from = options.from,
                                    .weights_only = options.weights_only,
                                    .allow = options.allow})
      .lines;
}

// Stops after a step, as a signal would.
train::RunOptions stop_after(int64_t step) {
  auto done = std::make_shared<std::atomic<bool>>(false);
  train::RunOptions options;
  options.on_step = [=](int64_t number, const train::StepResult&) { *done = number >= step; };
  options.interrupted = [=] { return *done ? 15 : 0; };
  return options;
}

const Sets kLong = {"eval.every=3", "eval.batches=1", "run.skip_spike.window=2", "run.noise_scale_every=2",
                    "optimizer.schedule.kind=\"cosine\""};

void expect_same_records(const base::Path& a, const base::Path& b) {
  const auto x = test::read_metrics(a), y = test::read_metrics(b);
  ASSERT_EQ(x.size(), y.size());
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(x[i].at("step"), i + 1);
    for (const char* key : {"step", "loss", "grad_norm", "lr", "tokens", "eval_loss", "noise_scale"}) {
      ASSERT_EQ(x[i].contains(key), y[i].contains(key)) << key << " of step " << i + 1;
      EXPECT_EQ(x[i].value(key, 0.0), y[i].value(key, 0.0)) << key << " of step " << i + 1;
    }
  }
}

// Asks to stop between two micro-batches of the step after this one (0: of the first): at the boundary, or
// before the first step, each of the ranks asks once.
train::RunOptions stop_within(int64_t step, int64_t ranks) {
  auto done = std::make_shared<std::atomic<bool>>(step == 0);
  auto asked = std::make_shared<std::atomic<int64_t>>(0);
  train::RunOptions options;
  options.long_step_seconds = 0;
  options.on_step = [=](int64_t number, const train::StepResult&) { *done = number >= step; };
  options.interrupted = [=] { return *done && asked->fetch_add(1) >= ranks ? 15 : 0; };
  return options;
}

// A step that is abandoned leaves nothing behind: the checkpoint is that of the step before, and the run
// continues as if it had never been stopped.
TEST(Resume, AnAbandonedStepLeavesNoTrace) {
  struct Case {
    const char* name;
    Sets sets;
    int64_t ranks;
  };
  const Sets micro_batches = {"batch.global=16", "batch.micro=1", "checkpoint.every=1", "checkpoint.keep=9"};
  const Sets experts = {
      "model.moe.experts=4", "model.moe.top_k=2",           "model.moe.ffn=16",
      "model.ffn=16",        "model.moe.balance_loss=0.01", "model.moe.balance_scope=global"};
  for (const Case& c :
       {Case{"zero 3 and tp", {}, 4}, Case{"one rank", test::kOneRank, 1}, Case{"experts", experts, 4}}) {
    SCOPED_TRACE(c.name);
    const SmallRun whole, stopped;
    const Sets sets = c.sets + micro_batches;
    whole.train(sets);
    for (const int64_t step : {0, 3}) {
      const train::RunResult first = stopped.train(sets, stop_within(step, c.ranks));
      EXPECT_EQ(first.summary.end, train::RunEnd::Interrupted);
      EXPECT_EQ(first.signal, 15);
      EXPECT_EQ(first.summary.steps, step);
      EXPECT_EQ(first.abandoned_step, step + 1);
    }
    const std::string third = "run/checkpoints/step-00000003", last = "run/checkpoints/step-00000006";
    EXPECT_TRUE(tensors_of(whole / third) == tensors_of(stopped / third));
    const train::RunResult second = stopped.train(sets);
    EXPECT_EQ(second.summary.end, train::RunEnd::Finished);
    EXPECT_EQ(second.abandoned_step, 0);
    expect_same_records(whole.run_folder().metrics(), stopped.run_folder().metrics());
    EXPECT_TRUE(tensors_of(whole / last) == tensors_of(stopped / last));
  }
}

TEST(Resume, AStepOfAPipelineIsFinished) {
  const SmallRun small;
  const Sets sets = test::kOneRank + Sets{"parallel.pp=2", "batch.global=8", "batch.micro=1"};
  const train::RunResult result = small.train(sets, stop_within(2, 2));
  EXPECT_EQ(result.abandoned_step, 0);
  EXPECT_EQ(result.summary.steps, 3);
}

// A signal during set-up: no step is started, also where one is never abandoned.
TEST(Resume, ASignalDuringSetUpWaitsForNoStep) {
  for (const Sets& layout : {test::kOneRank, test::kOneRank + Sets{"parallel.pp=2", "batch.global=8"}}) {
    const SmallRun whole, stopped;
    const Sets sets = layout + Sets{"batch.micro=1", "checkpoint.every=4"};
    train::RunOptions options;
    options.interrupted = [] { return 15; };
    const train::RunResult first = stopped.train(sets, options);
    EXPECT_EQ(first.summary.end, train::RunEnd::Interrupted);
    EXPECT_EQ(first.signal, 15);
    EXPECT_EQ(first.summary.steps, 0);
    EXPECT_EQ(first.abandoned_step, 0);
    EXPECT_TRUE(test::read_metrics(stopped.run_folder().metrics()).empty());
    whole.train(sets);
    EXPECT_EQ(stopped.train(sets, stop_after(3)).summary.steps, 3);
    EXPECT_EQ(stopped.train(sets, options).summary.steps, 3) << "nor when it continues";
    EXPECT_EQ(stopped.train(sets).summary.end, train::RunEnd::Finished);
    EXPECT_EQ(stopped.train(sets, options).summary.end, train::RunEnd::Finished) << "nothing is left to stop";
    expect_same_records(whole.run_folder().metrics(), stopped.run_folder().metrics());
    EXPECT_TRUE(tensors_of(whole / "run/checkpoints/step-00000006") ==
                tensors_of(stopped / "run/checkpoints/step-00000006"));
  }
}

TEST(Resume, AStoppedRunContinuesInEveryBit) {
  const SmallRun whole, stopped;
  const Sets sets = kLong + Sets{"checkpoint.every=2"};
  whole.train(sets);
  const train::RunResult first = stopped.train(sets, stop_after(3));
  EXPECT_EQ(first.signal, 15);
  EXPECT_EQ(first.summary.steps, 3);
  const std::vector<std::string> lines = lines_of_run(stopped, sets);
  ASSERT_FALSE(lines.empty());
  EXPECT_NE(lines[0].find("continues from"), std::string::npos);
  EXPECT_NE(lines[0].find("after step 3 of 6"), std::string::npos) << lines[0];
  const train::RunResult second = stopped.train(sets);
  EXPECT_EQ(second.summary.end, train::RunEnd::Finished);
  expect_same_records(whole.run_folder().metrics(), stopped.run_folder().metrics());
  const base::Path last = "run/checkpoints/step-00000006";
  EXPECT_TRUE(tensors_of(whole / last.string()) == tensors_of(stopped / last.string()));
  EXPECT_EQ(checkpoint::Reader(whole / last.string()).manifest().run.at("scalars"),
            checkpoint::Reader(stopped / last.string()).manifest().run.at("scalars"));
  EXPECT_EQ(test::read_json(whole.run_folder().summary()).at("evaluations"),
            test::read_json(stopped.run_folder().summary()).at("evaluations"));
  // A finished run has nothing left to do, says so, and keeps what it measured.
  const std::string summary = base::read_file(stopped.run_folder().summary());
  EXPECT_EQ(stopped.train(sets).summary.steps, 6);
  EXPECT_CONTAINS(lines_of_run(stopped, sets).at(0), "this run is complete: step 6 of 6");
  EXPECT_EQ(base::read_file(stopped.run_folder().summary()), summary);
  expect_same_records(whole.run_folder().metrics(), stopped.run_folder().metrics());
}

// Asks to stop before the second batch of the evaluation after this step: each rank is asked once before the
// first.
train::RunOptions stop_in_evaluation(int64_t step, int64_t ranks) {
  auto done = std::make_shared<std::atomic<bool>>(step == 0);
  auto asked = std::make_shared<std::atomic<int64_t>>(0);
  train::RunOptions options;
  options.on_step = [=](int64_t number, const train::StepResult&) { *done = number >= step; };
  options.interrupted = [=] { return *done && asked->fetch_add(1) >= ranks ? 15 : 0; };
  return options;
}

// The step before it is complete and saved, and its record is there without the evaluation; the next run
// repeats the evaluation, also if it is stopped again, and also after the last step.
TEST(Resume, AnEvaluationThatIsInterruptedIsRepeated) {
  const Sets sets = {"eval.every=3", "eval.batches=3", "checkpoint.every=4"};
  for (const auto& [ranks, layout] : {std::pair{4, Sets{}}, std::pair{1, test::kOneRank}}) {
    SCOPED_TRACE(ranks);
    const SmallRun whole, stopped;
    whole.train(sets + layout);
    for (const int64_t step : {3, 6}) {
      const train::RunResult first = stopped.train(sets + layout, stop_in_evaluation(step, ranks));
      EXPECT_EQ(first.summary.end, train::RunEnd::Interrupted);
      EXPECT_EQ(first.signal, 15);
      EXPECT_EQ(first.summary.steps, step);
      EXPECT_EQ(first.summary.evaluations.size(), static_cast<size_t>(step / 3 - 1));
      const auto records = test::read_metrics(stopped.run_folder().metrics());
      ASSERT_EQ(records.size(), static_cast<size_t>(step));
      EXPECT_FALSE(records.back().contains("eval_loss"));
      const train::RunResult again = stopped.train(sets + layout, stop_in_evaluation(0, ranks));
      EXPECT_EQ(again.summary.end, train::RunEnd::Interrupted) << "in the repeated evaluation";
      EXPECT_EQ(again.summary.steps, step);
    }
    const train::RunResult last = stopped.train(sets + layout);
    EXPECT_EQ(last.summary.end, train::RunEnd::Finished);
    expect_same_records(whole.run_folder().metrics(), stopped.run_folder().metrics());
    EXPECT_TRUE(tensors_of(whole / "run/checkpoints") == tensors_of(stopped / "run/checkpoints"));
    EXPECT_EQ(test::read_json(whole.run_folder().summary()).at("evaluations"),
              test::read_json(stopped.run_folder().summary()).at("evaluations"));
    // It is not repeated once more.
    EXPECT_EQ(stopped.train(sets + layout).summary.evaluations.size(), 2u);
  }
}

// Stopped within a stage, whose end counts sequences; one more stage begins after the stop.
TEST(Resume, AGrowingBatchContinuesWhereItWas) {
  const SmallRun whole, stopped;
  const Sets sets = {"batch.global=16",
                     "run.steps=7",
                     "checkpoint.every=2",
                     "batch.ramp=[{until=2, global=4}, {until='22 sequences', global=8}]",
                     "optimizer.schedule.kind=cosine",
                     "optimizer.schedule.warmup='300 tokens'"};
  whole.train(sets);
  EXPECT_EQ(stopped.train(sets, stop_after(3)).summary.steps, 3);
  stopped.train(sets);
  expect_same_records(whole.run_folder().metrics(), stopped.run_folder().metrics());
  std::vector<int64_t> sequences;
  for (const nlohmann::json& m : test::read_metrics(stopped.run_folder().metrics()))
    sequences.push_back(m.at("sequences"));
  EXPECT_EQ(sequences, (std::vector<int64_t>{4, 8, 16, 24, 40, 56, 72}));
  const std::string last = "run/checkpoints/step-00000007";
  EXPECT_TRUE(tensors_of(whole / last) == tensors_of(stopped / last));
}

// The past of the run stays in the recipe, as a stage of batch.ramp.
TEST(Resume, ALargerBatchGoesOnWhereTheRunIs) {
  const SmallRun small, whole;
  const Sets before = {"batch.global=8", "checkpoint.every=2"},
             ramp = {"batch.ramp=[{until=4, global=8}]", "batch.global=16", "checkpoint.every=2"};
  small.train(before, stop_after(4));
  train::RunOptions allowed;
  allowed.allow = {"batch"};
  for (const Sets& other : {Sets{"batch.global=16"}, Sets{"batch.global=4"},
                            Sets{"batch.ramp=[{until=3, global=8}]", "batch.global=16"}})
    for (const bool allow : {true, false}) {
      const std::string error =
          user_error([&] { small.train(other, allow ? allowed : train::RunOptions()); });
      EXPECT_CONTAINS(error, "the run has read 32 sequences in 4 steps");
      EXPECT_CONTAINS(error, "batch.ramp = [{ until = 4, global = 8 }]");
    }
  EXPECT_CONTAINS(user_error([&] { small.train(ramp); }), "--allow batch.global --allow batch.ramp");
  EXPECT_EQ(small.train(ramp, allowed).summary.steps, 6);
  whole.train(ramp);
  expect_same_records(whole.run_folder().metrics(), small.run_folder().metrics());
  const std::string last = "run/checkpoints/step-00000006";
  EXPECT_TRUE(tensors_of(whole / last) == tensors_of(small / last));
}

// Everything that a manifest has beside tensors is needed: without it, or with another value, the run is
// refused or goes on differently.
TEST(Resume, EveryPartOfTheStateMatters) {
  const SmallRun whole, stopped;
  const Sets sets = test::kOneRank + kLong +
                    Sets{"checkpoint.every=3",
                         "checkpoint.keep=9",
                         "precision.compute=f16",
                         "precision.loss_scale=dynamic",
                         "precision.loss_scale_window=4",
                         "optimizer.ema=0.9",
                         "run.steps=8",
                         "optimizer.schedule.kind=wsd",
                         "optimizer.schedule.decay=4"};
  whole.train(sets);
  stopped.train(sets, stop_after(5));
  const base::Path file = stopped / "run/checkpoints/step-00000005/manifest.json";
  const std::string text = base::read_file(file);
  const auto end_with = [&](const std::function<void(checkpoint::Json&)>& change) {
    checkpoint::Manifest m = checkpoint::parse_manifest(text, "test");
    change(m.run);
    const SmallRun changed;
    std::filesystem::copy(stopped.run_dir(), changed.run_dir(), std::filesystem::copy_options::recursive);
    std::filesystem::copy_file(stopped / "data.txt", changed / "data.txt",
                               std::filesystem::copy_options::overwrite_existing);
    base::write_file_atomically(changed / "run/checkpoints/step-00000005/manifest.json", to_text(m));
    changed.train(sets);
    nlohmann::json end = checkpoint::Reader(changed / "run/checkpoints/step-00000008").manifest().run;
    nlohmann::json records = nlohmann::json::array();
    for (nlohmann::json r : test::read_metrics(changed.run_folder().metrics())) {
      r.erase("tokens_per_s");
      records.push_back(std::move(r));
    }
    return nlohmann::json{{"records", records},
                          {"scalars", end.at("scalars")},
                          {"spikes", end.at("spikes")},
                          {"noise", end.at("noise")},
                          {"first_loss", end.at("summary").at("first_loss")},
                          {"tokens", end.at("summary").at("tokens")},
                          {"evaluations", end.at("summary").at("evaluations")}};
  };
  const nlohmann::json good = end_with([](checkpoint::Json&) {});
  const auto unbroken = test::read_metrics(whole.run_folder().metrics());
  for (size_t i = 0; i < unbroken.size(); ++i)
    EXPECT_EQ(good.at("records")[i].at("loss"), unbroken[i].at("loss")) << "step " << i + 1;
  const checkpoint::Json run = checkpoint::parse_manifest(text, "test").run;
  for (const auto& [key, value] : run.items())
    if (key != "environment")  // for people
      EXPECT_CONTAINS(user_error([&] { end_with([&, k = key](checkpoint::Json& r) { r.erase(k); }); }),
                      "not complete")
          << key;
  for (const auto& [key, value] : run.at("scalars").items())
    if (key != "skipped_in_row") {  // the next good step clears it
      EXPECT_NE(end_with([&, k = key](checkpoint::Json& r) {
                  const double v = r["scalars"][k].get<double>();
                  r["scalars"][k] = v > 0 ? v - 1 : 1;
                }),
                good)
          << key;
    }
  EXPECT_NE(end_with([](checkpoint::Json& r) { r["schedule_steps"] = 100; }), good);
  EXPECT_NE(end_with([](checkpoint::Json& r) { r["spikes"].clear(); }), good);
  EXPECT_NE(end_with([](checkpoint::Json& r) { r["noise"][1] = 0; }), good);
  EXPECT_NE(end_with([](checkpoint::Json& r) { r["summary"]["first_loss"] = 0; }), good);
  EXPECT_NE(end_with([](checkpoint::Json& r) {
              r["summary"]["tokens"] = r["summary"]["tokens"].get<int64_t>() + 1;
            }),
            good);
  EXPECT_NE(end_with([](checkpoint::Json& r) { r["summary"]["evaluations"].clear(); }), good);
  EXPECT_CONTAINS(user_error([&] { end_with([](checkpoint::Json& r) { r["step"] = 6; }); }),
                  "contradicts itself");
  EXPECT_CONTAINS(user_error([&] { end_with([](checkpoint::Json& r) { r["data"]["fingerprint"] = "0"; }); }),
                  "the data have changed");
}

// The records after the checkpoint are replaced; a record that a crash has cut off is dropped.
TEST(Resume, MetricsHaveOneRecordPerStep) {
  const SmallRun small;
  const Sets sets = {"checkpoint.every=2"};
  small.train(sets, stop_after(3));
  std::string text = base::read_file(small.run_folder().metrics());
  base::write_file_atomically(small.run_folder().metrics(),
                              text + "{\"step\": 4, \"loss\": 0}\n{\"step\": 5, \"lo");
  small.train(sets);
  const auto records = test::read_metrics(small.run_folder().metrics());
  ASSERT_EQ(records.size(), 6u);
  EXPECT_NE(records[3].at("loss"), 0);
}

TEST(Resume, AnotherNumberOfDataRanksSeesTheSameBatches) {
  const SmallRun whole, changed;
  const Sets f64 = {"precision.compute=\"f64\""};
  whole.train(f64 + Sets{"checkpoint.every=100"});
  changed.train(f64 + Sets{"checkpoint.every=100"}, stop_after(2));
  changed.train(f64 + Sets{"checkpoint.every=100", "parallel.dp_shard=4", "parallel.tp=1", "batch.micro=1",
                           "parallel.sequence_parallel=false", "parallel.zero=2"});
  const auto a = test::read_metrics(whole.run_folder().metrics()),
             b = test::read_metrics(changed.run_folder().metrics());
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i].at("loss").get<double>(), b[i].at("loss").get<double>(), 1e-10);
    EXPECT_EQ(a[i].at("tokens"), b[i].at("tokens"));
  }
}

TEST(Resume, WhatMakesAnotherRunIsRefusedByKey) {
  const SmallRun small;
  small.train({"checkpoint.every=2"}, stop_after(2));
  const auto refused = [&](const Sets& sets) {
    return user_error([&] { small.train(Sets{"checkpoint.every=2"} + sets); });
  };
  for (const auto& [set, key] :
       std::map<std::string, std::string>{{"optimizer.lr=0.5", "optimizer.lr"},
                                          {"batch.global=16", "batch.global"},
                                          {"model.rope_theta=5000", "model.rope_theta"},
                                          {"run.seed=3", "run.seed"},
                                          {"data.seq_len=16", "data.seq_len"}}) {
    const std::string message = refused({set});
    EXPECT_NE(message.find(key + " is "), std::string::npos) << message;
    const std::string remedy = key.starts_with("batch.") ? "--allow batch" : "--allow " + key;
    EXPECT_NE(message.find(remedy), std::string::npos) << message;
    EXPECT_NE(message.find("--fresh"), std::string::npos) << message;
  }
  EXPECT_NE(refused({"run.steps=1"}).find("run.steps is 1"), std::string::npos);
  // --allow cannot help where tensors have other shapes.
  const std::string sizes = refused({"model.ffn=48"});
  EXPECT_CONTAINS(sizes, "model.ffn is 48");
  EXPECT_CONTAINS(sizes, "in the checkpoint");
  EXPECT_CONTAINS(sizes, "has the shape [48, ");
  EXPECT_CONTAINS(sizes, "--weights-only --load");
  EXPECT_EQ(sizes.find("--allow"), std::string::npos) << sizes;
  base::write_file_atomically(small / "data.txt", test::sample_text(21000));
  EXPECT_NE(refused({}).find("--allow data.path"), std::string::npos);
  train::RunOptions options;
  options.allow = {"data.path", "optimizer"};
  EXPECT_EQ(small.train({"checkpoint.every=2", "optimizer.lr=0.001"}, options).summary.steps, 6);
  options.allow = {"optimizer.rl"};
  EXPECT_NE(user_error([&] { small.train({}, options); }).find("did you mean optimizer.lr"),
            std::string::npos);
}

TEST(Resume, ALongerRunKeepsItsSchedule) {
  const SmallRun small;
  const Sets sets = {"checkpoint.every=2", "optimizer.schedule.kind=\"linear\""};
  small.train(sets);
  const Sets longer = sets + Sets{"run.steps=8"};
  const std::vector<std::string> lines = lines_of_run(small, longer);
  ASSERT_GE(lines.size(), 2u);
  EXPECT_NE(lines[1].find("stays that of 6 steps"), std::string::npos) << lines[1];
  // The same command continues it, also after it was stopped.
  small.train(longer, stop_after(7));
  EXPECT_CONTAINS(lines_of_run(small, longer).at(1), "stays that of 6 steps");
  small.train(longer);
  const auto records = test::read_metrics(small.run_folder().metrics());
  ASSERT_EQ(records.size(), 8u);
  EXPECT_EQ(records[5].at("lr"), records[7].at("lr")) << "at its floor since step 6";

  // The recipe's own, when that is asked for: the rates of a run that was as long from the start, whether the
  // recipe has its end or the run. Later starts need not ask again.
  for (const Sets& kind : {Sets{"optimizer.schedule.kind=\"linear\""},
                           Sets{"optimizer.schedule.kind=\"wsd\"", "optimizer.schedule.decay=2"}}) {
    SCOPED_TRACE(kind[0]);
    const SmallRun asked, whole;
    asked.train(kind);
    train::RunOptions allowed = stop_after(7);
    allowed.allow = {"optimizer.schedule"};
    const Sets to_eight = kind + Sets{"run.steps=8"};
    for (const std::string& line : lines_of_run(asked, to_eight, allowed))
      EXPECT_EQ(line.find("stays"), std::string::npos) << line;
    asked.train(to_eight, allowed);
    asked.train(to_eight);
    whole.train(to_eight);
    const auto own = test::read_metrics(asked.run_folder().metrics()),
               expected = test::read_metrics(whole.run_folder().metrics());
    for (const size_t i : {6, 7}) EXPECT_EQ(own[i].at("lr"), expected[i].at("lr"));
    EXPECT_NE(own[6].at("lr"), records[6].at("lr"));
  }
}

// The length is the saved one, the ramp itself the recipe's: a change of it is refused as any other.
TEST(Resume, ALongerRunDoesNotDropAChangedRamp) {
  const SmallRun small;
  const Sets ramp = {"optimizer.weight_decay=0.1", "optimizer.weight_decay_ramp.kind=\"linear\"",
                     "optimizer.weight_decay_ramp.final_ratio=0.5"};
  small.train(ramp);
  const Sets longer = ramp + Sets{"run.steps=8"},
             changed = longer + Sets{"optimizer.weight_decay_ramp.final_ratio=0.25"};
  EXPECT_CONTAINS(user_error([&] { small.train(changed); }),
                  "optimizer.weight_decay_ramp.final_ratio is 0.25, 0.5 in the checkpoint");
  EXPECT_CONTAINS(lines_of_run(small, longer).at(1), "the weight-decay ramp stay that of 6 steps");
  small.train(longer);
  const auto last_decay = [&] {
    return test::read_metrics(small.run_folder().metrics()).back().at("weight_decay").get<double>();
  };
  EXPECT_NEAR(last_decay(), 0.05, 1e-12);
  train::RunOptions allowed;
  allowed.allow = {"optimizer.weight_decay_ramp"};
  small.train(changed + Sets{"run.steps=10"}, allowed);
  EXPECT_NEAR(last_decay(), 0.025, 1e-12);
}

// Why a continued run may differ in the last bits is said; what changes none of them is not.
TEST(Resume, OtherBitsAreAnnounced) {
  const Sets sets = {"checkpoint.every=2"};
  const auto state_of = [](const Sets& other) {
    const SmallRun small;
    small.train(other);
    return train::parse_run_state(checkpoint::Reader(small / "run/checkpoints/step-00000006").manifest().run,
                                  "test");
  };
  const train::RunState saved = state_of(sets);
  EXPECT_EQ(train::other_bits_line(saved, saved), "");
  EXPECT_EQ(train::other_bits_line(
                saved, state_of(sets + Sets{"eval.every=3", "eval.batches=1", "checkpoint.every=3",
                                            "run.threads=2", "run.noise_scale_every=2"})),
            "")
      << "steps are the same";
  const std::string layout =
      train::other_bits_line(saved, state_of(sets + Sets{"parallel.zero=1", "batch.micro=1"}));
  EXPECT_CONTAINS(layout, "perhaps not in every bit: ");
  EXPECT_CONTAINS(layout, "parallel.zero is 1, 3 when the checkpoint was saved");
  EXPECT_CONTAINS(layout, "batch.micro is 1, 2 when");
  EXPECT_CONTAINS(train::other_bits_line(saved, state_of(sets + Sets{"memory.recompute=\"full\""})),
                  "memory.recompute is ");
  const auto changed = [&](const std::function<void(train::RunState&)>& change) {
    train::RunState now = saved;
    change(now);
    return train::other_bits_line(saved, now);
  };
  EXPECT_CONTAINS(changed([](train::RunState& s) { s.program[0] ^= 1; }), "the step program is another one");
  for (const char* key : {"kernels", "commit", "build", "backend"})
    EXPECT_CONTAINS(changed([&](train::RunState& s) { s.environment[key] = "other"; }), "is other, ");
  EXPECT_EQ(changed([&](train::RunState& s) { s.environment["host"] = "other"; }), "");
  EXPECT_CONTAINS(changed([](train::RunState& s) { s.version = "2.0"; }), "the version is 2.0, not known");
  train::RunState hostile = saved;
  hostile.environment["kernels"] = 5;
  EXPECT_EQ(train::other_bits_line(hostile, saved), "");
}

TEST(Resume, ADiskWithoutRoomIsRefusedBeforeTheFirstStep) {
  const SmallRun small;
  const std::string message = user_error([&] {
    small.train({"checkpoint.every=2", "checkpoint.keep=1000000000"});
  });
  EXPECT_NE(message.find("checkpoint.keep is 1000000000"), std::string::npos) << message;
  EXPECT_FALSE(base::file_exists(small.run_folder().metrics()));
}

TEST(Resume, AnIntervalOfTimeSavesToo) {
  const SmallRun small;
  train::RunOptions slow;
  slow.on_step = [](int64_t, const train::StepResult&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
  };
  const int64_t begin = base::now_ns();
  small.train({"checkpoint.every=\"1s\"", "checkpoint.keep=10"}, slow);
  const auto seconds = static_cast<size_t>((base::now_ns() - begin) / 1'000'000'000);
  const size_t saved = checkpoint::Store(small / "run/checkpoints").list().size();
  EXPECT_GE(saved, 2u);
  EXPECT_LE(saved, seconds + 2) << "and the last";
}

TEST(Resume, ARunThatWasKilledEarlyStartsAgain) {
  const SmallRun small;
  // What is left of a run that was killed after two steps: no checkpoint, no summary.
  small.train({}, stop_after(2));
  std::filesystem::remove_all(small / "run/checkpoints");
  base::remove_file(small.run_folder().summary());
  EXPECT_CONTAINS(user_error([&] { lines_of_run(small, {}); }), "--overwrite");  // it ended by itself
  base::write_file_atomically(small.run_folder().lock(), "quintet lock: process 1");
  EXPECT_NE(lines_of_run(small, {}).at(0).find("starts again"), std::string::npos);
  // Or within its first save; weights that it did not leave are not replaced.
  const base::Path shard = small / "run/checkpoints/step-00000001/rank-00000.safetensors";
  base::make_directories(shard.parent_path());
  base::write_file_atomically(shard, "a part of it");
  EXPECT_NE(lines_of_run(small, {}).at(0).find("starts again"), std::string::npos);
  base::write_file_atomically(small / "run/mine.safetensors", "x");
  EXPECT_CONTAINS(user_error([&] { lines_of_run(small, {}); }), "--overwrite");
  base::remove_file(small / "run/mine.safetensors");
  // Or before its first record.
  const std::string metrics = base::read_file(small.run_folder().metrics());
  base::remove_file(small.run_folder().metrics());
  EXPECT_NE(lines_of_run(small, {}).at(0).find("starts again"), std::string::npos);
  base::write_file_atomically(small.run_folder().metrics(), metrics);
  const std::string other = user_error([&] { small.train({"optimizer.lr=0.5", "run.steps=7"}); });
  EXPECT_CONTAINS(other, "\n  optimizer.lr is 0.5, 0.01 in that run");
  EXPECT_CONTAINS(other, "\n  run.steps is 7, 6 in that run");
  EXPECT_CONTAINS(other, "--overwrite");
  EXPECT_EQ(small.train().summary.steps, 6);
  EXPECT_EQ(test::read_metrics(small.run_folder().metrics()).size(), 6u);
  std::filesystem::remove_all(small / "run/checkpoints");
  EXPECT_NE(user_error([&] { small.train(); }).find("--overwrite"), std::string::npos)
      << "a finished run without checkpoints is not replaced";
}

TEST(Resume, AnotherRunStartsFromACheckpoint) {
  const SmallRun first, second;
  first.train({"checkpoint.every=2", "checkpoint.keep=3"});
  train::RunOptions options;
  options.from = first / "run/checkpoints/step-00000004";
  second.train({"checkpoint.every=100"}, options);
  EXPECT_TRUE(tensors_of(first / "run/checkpoints/step-00000006") ==
              tensors_of(second / "run/checkpoints/step-00000006"));
  EXPECT_EQ(test::read_metrics(second.run_folder().metrics()).size(), 2u) << "of steps 5 and 6";
  // The weights alone start another run at step 1.
  const SmallRun third;
  options.weights_only = true;
  options.from = first.run_dir();
  const train::RunResult result = third.train({"run.steps=1", "optimizer.lr=1e-9", "run.seed=4"}, options);
  EXPECT_EQ(result.summary.steps, 1);
  EXPECT_LT(result.summary.first_loss, test::read_metrics(first.run_folder().metrics())[0].at("loss"));
  options.from.clear();
  EXPECT_NE(user_error([&] { SmallRun().train({}, options); }).find("--from"), std::string::npos);
}

// Going back to an earlier checkpoint sets the later ones aside; --fresh removes all.
TEST(Resume, GoingBackSetsLaterCheckpointsAside) {
  const SmallRun small;
  const Sets sets = {"checkpoint.every=2", "checkpoint.keep=5"};
  small.train(sets);
  train::RunOptions options;
  options.from = small / "run/checkpoints/step-00000002";
  small.train(sets, options);
  EXPECT_TRUE(base::file_exists(small / "run/checkpoints/abandoned-1-step-00000006/manifest.json"));
  EXPECT_TRUE(tensors_of(small / "run/checkpoints/abandoned-1-step-00000006") ==
              tensors_of(small / "run/checkpoints/step-00000006"));
  EXPECT_EQ(test::read_metrics(small.run_folder().metrics()).size(), 6u);
  train::RunOptions fresh;
  fresh.overwrite = true;
  small.train({"run.steps=3"}, fresh);
  EXPECT_EQ(checkpoint::Store(small / "run/checkpoints").newest()->step, 3);
}

// The n-th rename fails, as a crash would end the process there.
class RenamesFail : public QuickFiles {
 public:
  explicit RenamesFail(int64_t after) : left_(after) {}
  void rename(const base::Path& from, const base::Path& to) override {
    if (left_-- <= 0) base::fail_writing("rename", to, EIO);
    FileSystem::rename(from, to);
  }

 private:
  int64_t left_;
};

// Records of steps whose checkpoints are not set aside yet must not be lost.
TEST(Resume, AFaultWhileGoingBackLosesNoRecords) {
  for (const int64_t renamed : {0, 1}) {
    const SmallRun whole, small;
    const Sets sets = {"checkpoint.every=2", "checkpoint.keep=5"};
    whole.train(sets);
    small.train(sets);
    RenamesFail files(renamed);
    train::RunOptions options;
    options.from = small / "run/checkpoints/step-00000002";
    options.files = &files;
    EXPECT_CONTAINS(user_error([&] { small.train(sets, options); }), "cannot rename");
    EXPECT_EQ(test::read_metrics(small.run_folder().metrics()).size(), 6u);
    EXPECT_EQ(checkpoint::Store(small / "run/checkpoints").newest()->step, renamed == 0 ? 6 : 4);
    small.train(sets);
    expect_same_records(whole.run_folder().metrics(), small.run_folder().metrics());
  }
}

// What a crash repeats is said.
TEST(Resume, RepeatedStepsAreReported) {
  const SmallRun small;
  const Sets sets = {"checkpoint.every=2", "checkpoint.keep=5"};
  small.train(sets);
  const auto said = [&](int64_t step) {
    train::RunOptions options;
    options.from = small / fmt::format("run/checkpoints/step-{:08}", step);
    return fmt::format("{}", fmt::join(lines_of_run(small, sets, options), "\n"));
  };
  EXPECT_CONTAINS(said(2), "4 steps after the checkpoint, 3 to 6, are repeated");
  EXPECT_EQ(said(6).find("repeated"), std::string::npos);
}

// Records that are gone cannot be repeated.
TEST(Resume, LostRecordsAreReported) {
  const SmallRun small;
  small.train();
  const Sets longer = {"run.steps=8"};
  EXPECT_EQ(fmt::format("{}", fmt::join(lines_of_run(small, longer), "\n")).find("lost"), std::string::npos);
  const base::Path metrics = small.run_folder().metrics();
  const std::string text = base::read_file(metrics);
  base::write_file_atomically(metrics, text.substr(0, text.find("\n", text.find("\"step\": 4")) + 1));
  EXPECT_CONTAINS(fmt::format("{}", fmt::join(lines_of_run(small, longer), "\n")),
                  "ends early: the records of steps 5 to 6 are lost");
  base::remove_file(metrics);
  EXPECT_CONTAINS(fmt::format("{}", fmt::join(lines_of_run(small, longer), "\n")),
                  "does not exist: the records of steps 1 to 6 are lost");
}

// Under Slurm a checkpoint is saved before the job's time is over.
TEST(Resume, ACheckpointIsSavedBeforeTheJobEnds) {
  for (const int64_t seconds : {20, 100000}) {
    ASSERT_EQ(::setenv("SLURM_JOB_END_TIME", fmt::format("{}", base::wall_seconds() + seconds).c_str(), 1),
              0);
    const SmallRun small;
    // From then on checkpoint.bandwidth has no effect: this save, and the last, would take days.
    small.train({"checkpoint.every=1000", "checkpoint.keep=9",
                 seconds < 30 ? "checkpoint.bandwidth=\"1B\"" : "checkpoint.bandwidth=0"});
    ::unsetenv("SLURM_JOB_END_TIME");
    const auto entries = checkpoint::Store(small / "run/checkpoints").list();
    ASSERT_EQ(entries.size(), seconds < 30 ? 2u : 1u) << "and the last state";
    EXPECT_LE(entries.front().step, seconds < 30 ? 3 : 6);
  }
}

// Nor has it for a stop: the save in progress and the last one would take days.
TEST(Resume, AStopDoesNotWaitForTheBandwidth) {
  for (const Sets& layout : {test::kOneRank, Sets{}}) {
    const SmallRun small;
    const train::RunResult result =
        small.train(layout + Sets{"checkpoint.bandwidth=\"1B\"", "checkpoint.every=3"}, stop_after(4));
    EXPECT_EQ(result.summary.end, train::RunEnd::Interrupted);
    for (const int64_t step : {3, 4})
      checkpoint::Reader(checkpoint::Store(small / "run/checkpoints").folder_of(step)).verify();
  }
}

// What has computed a state is in its checkpoint.
TEST(Resume, ACheckpointNamesWhatSavedIt) {
  const SmallRun small;
  train::RunOptions options;
  options.provenance.commit = "0123abc";
  options.provenance.host = "node7";
  small.train({}, options);
  const train::RunState state = train::parse_run_state(
      checkpoint::Reader(small / "run/checkpoints/step-00000006").manifest().run, "test");
  EXPECT_EQ(state.environment.at("commit"), "0123abc");
  EXPECT_EQ(state.environment.at("host"), "node7");
  EXPECT_GT(state.environment.at("threads"), 0);
  EXPECT_FALSE(state.environment.at("device").get<std::string>().empty());
}

// Flips a bit near the end of a file.
void damage(const base::Path& file) {
  std::string bytes = base::read_file(file);
  bytes[bytes.size() - 5] ^= 1;
  base::write_file_atomically(file, bytes);
}

TEST(Resume, ADamagedCheckpointIsRefusedByName) {
  const SmallRun small;
  const Sets sets = {"checkpoint.every=1", "checkpoint.keep=5"};
  small.train(sets, stop_after(4));
  const auto folder = [&](int step) { return small / fmt::format("run/checkpoints/step-0000000{}", step); };
  damage(folder(4) / "rank-00002.safetensors");
  base::remove_file(folder(3) / "rank-00001.safetensors");
  const std::string refused = user_error([&] { small.train(sets); });
  EXPECT_CONTAINS(refused, "step-00000004/rank-00002.safetensors' is damaged");
  // The next older one is damaged, too.
  EXPECT_CONTAINS(refused, "is not damaged is " + folder(2).string() + " (every checksum was compared)");
  EXPECT_CONTAINS(refused, "--from " + folder(2).string());
  // So does a damaged manifest.
  const std::string manifest = base::read_file(folder(4) / "manifest.json");
  damage(folder(4) / "manifest.json");
  const std::string no_manifest = user_error([&] { small.train(sets); });
  EXPECT_CONTAINS(no_manifest, "manifest.json is damaged");
  EXPECT_CONTAINS(no_manifest, "--from " + folder(2).string());
  base::write_file_atomically(folder(4) / "manifest.json", manifest);
  // One that is asked for and damaged changes nothing: no checkpoint is set aside, no record removed.
  train::RunOptions options;
  options.from = folder(3);
  EXPECT_CONTAINS(user_error([&] { small.train(sets, options); }), "step-00000003/rank-00001.safetensors'");
  EXPECT_EQ(checkpoint::Store(small / "run/checkpoints").newest()->step, 4);
  EXPECT_EQ(test::read_metrics(small.run_folder().metrics()).size(), 4u);
  // Only when asked: an earlier one.
  options.from = folder(2);
  EXPECT_EQ(small.train(sets, options).summary.steps, 6);
  EXPECT_TRUE(base::directory_exists(small / "run/checkpoints/abandoned-1-step-00000004"));
}

TEST(Resume, WithoutAWholeCheckpointTheMessageSaysSo) {
  const SmallRun small;
  small.train({"run.steps=1"});
  damage(small / "run/checkpoints/step-00000001/rank-00000.safetensors");
  EXPECT_CONTAINS(user_error([&] { small.train(); }), "has no older checkpoint that is not damaged");
}

// What --fresh would replace stays until the new run has its state.
TEST(Resume, AFreshRunFromADamagedCheckpointReplacesNothing) {
  const SmallRun small, other;
  small.train();
  other.train();
  damage(other / "run/checkpoints/step-00000006/rank-00000.safetensors");
  const auto before = tensors_of(small.run_dir());
  train::RunOptions options;
  options.overwrite = true;
  options.from = other.run_dir();
  EXPECT_CONTAINS(user_error([&] { small.train({"run.steps=8"}, options); }), "is damaged");
  EXPECT_TRUE(tensors_of(small.run_dir()) == before);
  EXPECT_EQ(test::read_metrics(small.run_folder().metrics()).size(), 6u);
  EXPECT_TRUE(base::file_exists(small.run_folder().summary()));
}

}  // namespace
}  // namespace quintet
