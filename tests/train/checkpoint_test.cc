// Saving, loading in other layouts, and continuing runs.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <thread>

#include "base/failure_rate.h"
#include "checkpoint/reader.h"
#include "checkpoint/store.h"
#include "comm/local.h"
#include "support/small_recipe.h"
#include "train/checkpointer.h"
#include "train/resume.h"
#include "train/run_data.h"
#include "train/saved_state.h"
#include "train/support.h"

namespace quintet {
namespace {

using test::SmallRun;
using test::user_error;
using Sets = std::vector<std::string>;

Sets operator+(Sets a, const Sets& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Every tensor of a checkpoint, whole.
std::map<std::string, std::string> tensors_of(const base::Path& folder) {
  checkpoint::Reader reader(folder);
  std::map<std::string, std::string> out;
  for (const checkpoint::SavedTensor& t : reader.manifest().tensors) {
    std::vector<std::byte> bytes(static_cast<size_t>(t.info.bytes()));
    reader.read(t, checkpoint::Region::whole(t.info.shape), bytes);
    out[t.info.name] = std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return out;
}

std::vector<std::string> names_of(const std::map<std::string, std::string>& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, bytes] : tensors) names.push_back(name);
  return names;
}

// ---- layouts

struct LayoutCase {
  const char* name;
  Sets sets;
};

// Of a dense model of 2 blocks with a vocabulary that no axis divides, so that ranks hold padding.
const std::vector<LayoutCase> kDenseLayouts = {
    {"one rank", {}},
    {"dp 2", {"parallel.dp_shard=2"}},
    {"zero 1", {"parallel.dp_shard=4", "parallel.zero=1"}},
    {"zero 2", {"parallel.dp_shard=2", "parallel.dp_replicate=2", "parallel.zero=2"}},
    {"zero 3", {"parallel.dp_shard=4", "parallel.zero=3"}},
    {"tp 2", {"parallel.tp=2", "parallel.sequence_parallel=true"}},
    {"tp 4 zero 3", {"parallel.tp=4", "parallel.dp_shard=2", "parallel.zero=3"}},
    {"pp 2", {"parallel.pp=2"}},
    {"pp 2 zero 1", {"parallel.pp=2", "parallel.dp_shard=2", "parallel.zero=1"}},
    {"cp 2 zero 3", {"parallel.cp=2", "parallel.zero=3"}},
    {"cp 2 tp 2 dp 2", {"parallel.cp=2", "parallel.tp=2", "parallel.dp_shard=2", "parallel.zero=2"}},
};
const std::vector<LayoutCase> kExpertLayouts = {
    {"one rank", {}},
    {"ep 2", {"parallel.dp_shard=2", "parallel.ep=2"}},
    {"ep 4 zero 2", {"parallel.dp_shard=4", "parallel.ep=4", "parallel.zero=2"}},
    {"etp 2", {"parallel.tp=2", "parallel.etp=2"}},
    {"ep 2 tp 2 zero 3", {"parallel.dp_shard=2", "parallel.tp=2", "parallel.ep=2", "parallel.zero=3"}},
};
const Sets kModelWithExperts = {"model.moe.experts=4", "model.moe.top_k=2", "model.moe.ffn=48",
                                "model.moe.bias_rate=0.01", "model.moe.score=\"sigmoid\""};
const std::vector<Sets> kOptimizers = {
    {"optimizer.name=\"adamw\"", "optimizer.ema=0.9"},
    {"optimizer.name=\"sgd\"", "optimizer.momentum=0.9"},
    {"optimizer.name=\"lion\""},
    {"optimizer.name=\"muon\""},
    {"optimizer.name=\"lamb\""},
    {"optimizer.name=\"lars\"", "optimizer.momentum=0.9"},
    {"optimizer.name=\"adam\"", "optimizer.groups=[{match=\"*attn*\", update=false}]"},
    {"optimizer.name=\"adamw\"", "optimizer.groups=[{match=\"*ffn*\", name=\"lion\"}]", "model.tied=true"},
    {"optimizer.name=\"adafactor\""},
};

config::Recipe recipe_of(const Sets& sets) {
  return test::small_recipe({"precision.compute=\"f64\"", "batch.global=8", "run.steps=8", "run.threads=1",
                             "run.seed=5", "optimizer.lr=1e-2"},
                            sets);
}

data::Corpus corpus() {
  std::mt19937 random(7);
  std::vector<int32_t> tokens(4000);
  for (int32_t& t : tokens) t = static_cast<int32_t>(random() % 200);
  return data::Corpus::from_documents("test", 256, {tokens});
}

// Nothing crashes here, and flushing takes long.
class QuickFiles : public base::FileSystem {
  void sync(int, const base::Path&) override {}
  void sync_directory(const base::Path&) override {}
};

// Runs steps [begin, end) in a layout, from a checkpoint unless begin is 0, and saves the state after it.
// Returns the loss of each step.
std::vector<double> run_steps(const config::Recipe& recipe, const data::Corpus& text, const base::Path& store,
                              int64_t begin, int64_t end, const base::Path& from) {
  config::Recipe here = recipe;
  here.checkpoint.dir = store.string();
  const train::RunData data = train::make_data(here, text);
  std::vector<double> losses(static_cast<size_t>(end - begin));
  QuickFiles files;
  comm::run_local_world(static_cast<int>(here.parallel.world()), [&](comm::World& world) {
    train::Rank rank(here, world, {});
    if (!from.empty()) {
      checkpoint::Reader reader(from);
      const train::RunState state = train::parse_run_state(reader.manifest().run, "test");
      EXPECT_EQ(state.step, begin);
      train::load_state(rank, reader, {});
      rank.set_scalar_states(state.scalars);
    }
    for (int64_t step = begin; step < end; ++step) {
      const double loss = rank.step(step, data.train).loss;
      if (world.rank().value == 0) losses[static_cast<size_t>(step - begin)] = loss;
    }
    train::Checkpointer checkpoints(
        rank, world, here,
        [&] { return to_json(train::RunState{.step = end, .scalars = rank.scalar_states(), .recipe = ""}); },
        [](const std::string&) {}, files);
    checkpoints.save(end);
    checkpoints.finish();
  });
  return losses;
}

double largest_difference(const std::string& a, const std::string& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (size_t i = 0; i + 8 <= a.size(); i += 8) {
    double x = 0, y = 0;
    std::memcpy(&x, a.data() + i, 8), std::memcpy(&y, b.data() + i, 8);
    most = std::max(most, std::abs(x - y) / std::max(1.0, std::abs(x)));
  }
  return most;
}

// Two steps in one layout, saved; loaded in another and saved again: equal bytes. Then one more step in
// both: equal within 1e-10, in the same layout in every bit.
void expect_reshards(const Sets& model, const LayoutCase& from, const LayoutCase& to) {
  SCOPED_TRACE(std::string(from.name) + " to " + to.name + ", " + model.front());
  const test::TempFolder folder;
  const data::Corpus text = corpus();
  const config::Recipe a = recipe_of(model + from.sets), b = recipe_of(model + to.sets);
  run_steps(a, text, folder / "a", 0, 2, {});
  const base::Path saved = checkpoint::Store(folder / "a").folder_of(2);
  run_steps(b, text, folder / "b", 2, 2, saved);
  const auto first = tensors_of(saved), again = tensors_of(checkpoint::Store(folder / "b").folder_of(2));
  ASSERT_EQ(names_of(first), names_of(again));
  for (const auto& [name, bytes] : first) EXPECT_TRUE(again.at(name) == bytes) << name;

  const std::vector<double> unbroken = run_steps(a, text, folder / "whole", 0, 3, {}),
                            continued = run_steps(b, text, folder / "continued", 2, 3, saved);
  const auto expected = tensors_of(checkpoint::Store(folder / "whole").folder_of(3)),
             found = tensors_of(checkpoint::Store(folder / "continued").folder_of(3));
  const bool same = from.sets == to.sets;
  EXPECT_NEAR(unbroken[2], continued[0], same ? 0 : 1e-10);
  for (const auto& [name, bytes] : expected) {
    if (same)
      EXPECT_TRUE(found.at(name) == bytes) << name;
    else if (name.find("/adamw8bit.") != std::string::npos && !name.ends_with(".scale"))
      EXPECT_TRUE(found.at(name) == bytes) << name;  // codes
    else
      EXPECT_LT(largest_difference(found.at(name), bytes), 1e-10) << name;
  }
}

// Pairs of layouts, each optimizer at least once; QUINTET_RESHARD_ALL=1 (make reshard): every ordered pair.
TEST(Reshard, AnyLayoutLoadsWhatAnyOtherSaved) {
  std::mt19937 random(11);
  const bool all = std::getenv("QUINTET_RESHARD_ALL") != nullptr;
  size_t optimizer = 0;
  const auto pairs = [&](const Sets& model, const std::vector<LayoutCase>& cases, size_t some) {
    if (all) {
      for (const LayoutCase& from : cases)
        for (const LayoutCase& to : cases)
          expect_reshards(kOptimizers[optimizer++ % kOptimizers.size()] + model, from, to);
      return;
    }
    // Every layout is a source and a target once.
    std::vector<size_t> targets(cases.size());
    for (size_t i = 0; i < targets.size(); ++i) targets[i] = i;
    std::shuffle(targets.begin(), targets.end(), random);
    for (size_t i = 0; i < std::min(some, cases.size()); ++i)
      expect_reshards(kOptimizers[optimizer++ % kOptimizers.size()] + model, cases[i], cases[targets[i]]);
  };
  pairs({"model.vocab=259"}, kDenseLayouts, kDenseLayouts.size());
  pairs(kModelWithExperts, kExpertLayouts, kExpertLayouts.size());
}

// Codes of 8 bits, and a scale per block of 8 elements.
TEST(Reshard, EightBitMomentsInAnyLayout) {
  const Sets eight_bit = {"optimizer.name=\"adamw8bit\"", "optimizer.block_size=8", "model.vocab=259"};
  expect_reshards(eight_bit, kDenseLayouts[4], kDenseLayouts[5]);
  expect_reshards(eight_bit, kDenseLayouts[5], kDenseLayouts[8]);
  expect_reshards(eight_bit + kModelWithExperts, kExpertLayouts[4], kExpertLayouts[1]);
}

TEST(Reshard, TheSameLayoutContinuesInEveryBit) {
  expect_reshards(kOptimizers[0], kDenseLayouts[6], kDenseLayouts[6]);
  expect_reshards(kOptimizers[3], kDenseLayouts[8], kDenseLayouts[8]);
}

// ---- what ranks write

TEST(SavedState, RanksWriteEverythingOnceAndEvenly) {
  const test::TempFolder folder;
  // Large enough that replicas divide tensors.
  const config::Recipe recipe = recipe_of({"model.embed=128", "model.ffn=512", "parallel.dp_replicate=2",
                                           "parallel.dp_shard=2", "parallel.tp=2", "parallel.zero=1"});
  run_steps(recipe, corpus(), folder.path(), 0, 0, {});
  checkpoint::Reader reader(checkpoint::Store(folder.path()).folder_of(0));
  reader.verify();  // exactly once
  int64_t least = INT64_MAX, most = 0, sum = 0;
  for (const checkpoint::ShardFile& file : reader.manifest().files) {
    const int64_t bytes = file.bytes - file.header_bytes;
    least = std::min(least, bytes), most = std::max(most, bytes), sum += bytes;
  }
  EXPECT_EQ(sum, reader.manifest().tensor_bytes());
  EXPECT_EQ(reader.manifest().files.size(), 8u);
  EXPECT_LT(static_cast<double>(most), 1.05 * static_cast<double>(least));
}

TEST(SavedState, SplitAndPlainMastersAreTheSameFile) {
  const test::TempFolder folder;
  const Sets bf16 = {"precision.compute=\"bf16\"", "parallel.dp_shard=2", "parallel.zero=2"};
  const auto saved = [&](const char* name, const Sets& sets) {
    config::Recipe recipe =
        test::small_recipe({"batch.global=8", "run.steps=8", "run.threads=1"}, bf16 + sets);
    run_steps(recipe, corpus(), folder / name, 0, 2, {});
    return std::pair(recipe, checkpoint::Store(folder / name).folder_of(2));
  };
  const auto [plain, a] = saved("plain", {"precision.master=\"f32\""});
  const auto [split, b] = saved("split", {"precision.master=\"split\""});
  run_steps(split, corpus(), folder / "loaded", 2, 2, a);
  EXPECT_TRUE(tensors_of(checkpoint::Store(folder / "loaded").folder_of(2)) == tensors_of(a));
  run_steps(plain, corpus(), folder / "back", 2, 2, b);
  EXPECT_TRUE(tensors_of(checkpoint::Store(folder / "back").folder_of(2)) == tensors_of(b));
}

// Parameters that are never updated are written once; later checkpoints have the same file.
TEST(SavedState, FrozenParametersAreLinked) {
  const SmallRun small;
  small.train(
      {"checkpoint.every=2", "checkpoint.keep=3", "optimizer.groups=[{match=\"*ffn*\", update=false}]"});
  const base::Path first = small / "run/checkpoints/step-00000002/frozen-00001.safetensors",
                   last = small / "run/checkpoints/step-00000006/frozen-00001.safetensors";
  EXPECT_TRUE(std::filesystem::equivalent(first, last));
  checkpoint::Reader reader(small / "run/checkpoints/step-00000006");
  reader.verify();
  EXPECT_EQ(reader.manifest().files.size(), 8u);
  // Each stays whole without the others.
  checkpoint::Store store(small / "run/checkpoints");
  store.prune({.keep = 1});
  checkpoint::Reader(small / "run/checkpoints/step-00000006").verify();
}

TEST(SavedState, TheIntervalFollowsFromCostAndFailures) {
  // One failure in 50 hours of 1,000 devices; each save stops training for 2 s: every 13.9 min (Young).
  EXPECT_NEAR(train::auto_interval(2, 1, 1000),
              std::sqrt(2 * 2 * 3600 / (base::kFailuresPerDeviceHour * 1000)), 1e-9);
  EXPECT_EQ(train::auto_interval(1e-6, 500, 1000), 1000) << "a save takes longer";
  EXPECT_EQ(train::auto_interval(0, 0, 1), 1);
}

// ---- runs

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
  // A finished run has nothing left to do.
  EXPECT_EQ(stopped.train(sets).summary.steps, 6);
  expect_same_records(whole.run_folder().metrics(), stopped.run_folder().metrics());
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
    EXPECT_NE(message.find("--allow " + key), std::string::npos) << message;
    EXPECT_NE(message.find("--fresh"), std::string::npos) << message;
  }
  EXPECT_NE(refused({"run.steps=1"}).find("run.steps is 1"), std::string::npos);
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
  EXPECT_NE(lines[1].find("stays as saved"), std::string::npos) << lines[1];
  small.train(longer);
  const auto records = test::read_metrics(small.run_folder().metrics());
  ASSERT_EQ(records.size(), 8u);
  EXPECT_EQ(records[5].at("lr"), records[7].at("lr")) << "at its floor since step 6";
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
  small.train({"checkpoint.every=\"1s\"", "checkpoint.keep=10"}, slow);
  const size_t saved = checkpoint::Store(small / "run/checkpoints").list().size();
  EXPECT_GE(saved, 2u);
  EXPECT_LE(saved, 4u);
}

TEST(Resume, ARunThatWasKilledEarlyStartsAgain) {
  const SmallRun small;
  // What is left of a run that was killed after two steps: no checkpoint, no summary.
  small.train({}, stop_after(2));
  std::filesystem::remove_all(small / "run/checkpoints");
  base::remove_file(small.run_folder().summary());
  EXPECT_NE(lines_of_run(small, {}).at(0).find("starts again"), std::string::npos);
  EXPECT_NE(user_error([&] { small.train({"optimizer.lr=0.5"}); }).find("--overwrite"), std::string::npos);
  EXPECT_EQ(small.train().summary.steps, 6);
  EXPECT_EQ(test::read_metrics(small.run_folder().metrics()).size(), 6u);
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
  EXPECT_FALSE(checkpoint::Store(small / "run/checkpoints").newest());
}

TEST(Resume, ADamagedCheckpointIsRefusedByName) {
  const SmallRun small;
  const Sets sets = {"checkpoint.every=2", "checkpoint.keep=5"};
  small.train(sets, stop_after(4));
  const base::Path shard = small / "run/checkpoints/step-00000004/rank-00002.safetensors";
  std::string bytes = base::read_file(shard);
  bytes[bytes.size() - 5] ^= 1;
  base::write_file_atomically(shard, bytes);
  try {
    small.train(sets);
    ADD_FAILURE() << "a damaged checkpoint was loaded";
  } catch (const std::exception& e) {
    EXPECT_NE(std::string(e.what()).find("rank-00002.safetensors' is damaged"), std::string::npos)
        << e.what();
  }
  // Only when asked: an earlier one.
  train::RunOptions options;
  options.from = small / "run/checkpoints/step-00000002";
  EXPECT_EQ(small.train(sets, options).summary.steps, 6);
}

}  // namespace
}  // namespace quintet
