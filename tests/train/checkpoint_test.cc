// Saving, and loading in other layouts.
#include <gtest/gtest.h>

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

std::vector<std::string> names_of(const std::map<std::string, std::string>& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, bytes] : tensors) names.push_back(name);
  return names;
}

// ---- layouts

struct LayoutCase {
  const char* name;
  Sets sets;
  bool experts = false;  // only of a model with them
  int blocks = 2;        // at least
};

// Every axis, every ZeRO stage, worlds of 1 to 8 ranks.
const std::vector<LayoutCase> kLayouts = {
    {"one rank", {}},
    {"dp 2", {"parallel.dp_shard=2"}},
    {"zero 1 of 3", {"parallel.dp_shard=3", "parallel.zero=1"}},
    {"zero 2", {"parallel.dp_shard=2", "parallel.dp_replicate=2", "parallel.zero=2"}},
    {"zero 3", {"parallel.dp_shard=4", "parallel.zero=3"}},
    {"zero 3 of 2, twice", {"parallel.dp_shard=2", "parallel.dp_replicate=2", "parallel.zero=3"}},
    {"zero 3 of 2, state over 4",
     {"parallel.dp_shard=2", "parallel.dp_replicate=2", "parallel.zero=3", "parallel.zero_replicas=1"}},
    {"zero 3 of 2, one group of blocks, some whole",
     {"parallel.dp_shard=2", "parallel.zero=3", "parallel.group=2", "parallel.persist_below=\"20KiB\""}},
    {"tp 2", {"parallel.tp=2", "parallel.sequence_parallel=true"}},
    {"tp 4 zero 3", {"parallel.tp=4", "parallel.dp_shard=2", "parallel.zero=3"}},
    {"pp 2", {"parallel.pp=2"}},
    {"pp 2 of 2 chunks",
     {"parallel.pp=2", "parallel.schedule=\"interleaved\"", "parallel.chunks=2"},
     false,
     4},
    {"pp 2 zero 1 of 3", {"parallel.pp=2", "parallel.dp_shard=3", "parallel.zero=1"}},
    {"pp 5", {"parallel.pp=5"}, false, 5},
    {"pp 7", {"parallel.pp=7"}, false, 7},
    {"cp 2 zero 3", {"parallel.cp=2", "parallel.zero=3"}},
    {"cp 2 tp 2 dp 2", {"parallel.cp=2", "parallel.tp=2", "parallel.dp_shard=2", "parallel.zero=2"}},
    {"ep 2", {"parallel.dp_shard=2", "parallel.ep=2"}, true},
    {"ep 4 zero 2", {"parallel.dp_shard=4", "parallel.ep=4", "parallel.zero=2"}, true},
    {"etp 2", {"parallel.tp=2", "parallel.etp=2"}, true},
    {"ep 2 tp 2 zero 3", {"parallel.dp_shard=2", "parallel.tp=2", "parallel.ep=2", "parallel.zero=3"}, true},
    {"pp 2 ep 2 zero 1", {"parallel.pp=2", "parallel.dp_shard=2", "parallel.ep=2", "parallel.zero=1"}, true},
};
// Models of 2 or more blocks, a vocabulary that no axis divides, so that ranks hold padding; the number of
// sequences divides by all numbers of data ranks.
const Sets kDenseModel = {"model.vocab=259", "model.ffn=64", "batch.global=12"};
const Sets kExpertModel = kDenseModel + Sets{"model.moe.experts=4", "model.moe.top_k=2", "model.moe.ffn=64",
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
    // Every layout has whole blocks.
    {"optimizer.name=\"adamw8bit\"", "optimizer.block_size=8", "model.embed=32"},
};

const LayoutCase& layout(std::string_view name) {
  for (const LayoutCase& l : kLayouts)
    if (l.name == name) return l;
  throw std::out_of_range(std::string(name));
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

// Two steps in one layout, saved; loaded in another and saved again: equal bytes. Then two more steps in
// both: equal within 1e-10, in the same layout in every bit.
void expect_reshards(const Sets& model, const LayoutCase& from, const LayoutCase& to) {
  SCOPED_TRACE(std::string(from.name) + " to " + to.name + ", " + model.back());
  const test::TempFolder folder;
  const data::Corpus text = corpus();
  const config::Recipe a = recipe_of(model + from.sets), b = recipe_of(model + to.sets);
  run_steps(a, text, folder / "a", 0, 2, {});
  const base::Path saved = checkpoint::Store(folder / "a").folder_of(2);
  run_steps(b, text, folder / "b", 2, 2, saved);
  const auto first = tensors_of(saved), again = tensors_of(checkpoint::Store(folder / "b").folder_of(2));
  ASSERT_EQ(names_of(first), names_of(again));
  for (const auto& [name, bytes] : first) EXPECT_TRUE(again.at(name) == bytes) << name;

  const std::vector<double> unbroken = run_steps(a, text, folder / "whole", 0, 4, {}),
                            continued = run_steps(b, text, folder / "continued", 2, 4, saved);
  const auto expected = tensors_of(checkpoint::Store(folder / "whole").folder_of(4)),
             found = tensors_of(checkpoint::Store(folder / "continued").folder_of(4));
  const bool same = from.sets == to.sets;
  for (const size_t step : {0, 1}) EXPECT_NEAR(unbroken[2 + step], continued[step], same ? 0 : 1e-10);
  for (const auto& [name, bytes] : expected) {
    if (same)
      EXPECT_TRUE(found.at(name) == bytes) << name;
    else if (name.find("/adamw8bit.") != std::string::npos && !name.ends_with(".scale"))
      EXPECT_TRUE(found.at(name) == bytes) << name;  // codes
    else
      EXPECT_LT(largest_difference(found.at(name), bytes), 1e-10) << name;
  }
}

// 24 pairs of layouts: every layout is a target, every optimizer is there twice. QUINTET_RESHARD_ALL=1 (make
// reshard): all 400 ordered pairs.
TEST(Reshard, AnyLayoutLoadsWhatAnyOtherSaved) {
  const size_t count = kLayouts.size(), all = count * count;
  std::vector<size_t> pairs, targets(count);  // a pair is from * count + to
  for (size_t i = 0; i < all; ++i) pairs.push_back(i);
  std::mt19937 random(11);
  std::shuffle(pairs.begin(), pairs.end(), random);
  if (std::getenv("QUINTET_RESHARD_ALL") == nullptr) {
    pairs.resize(24 - count);
    for (size_t i = 0; i < count; ++i) targets[i] = i;
    std::shuffle(targets.begin(), targets.end(), random);
    for (size_t i = 0; i < count; ++i) pairs.push_back(i * count + targets[i]);
  }
  for (size_t n = 0; n < pairs.size(); ++n) {
    const LayoutCase &from = kLayouts[pairs[n] / count], &to = kLayouts[pairs[n] % count];
    const bool experts = from.experts || to.experts || n % 3 == 0;
    const Sets& optimizer = kOptimizers[n % kOptimizers.size()];
    const Sets blocks = {fmt::format("model.layers={}", std::max(from.blocks, to.blocks))};
    expect_reshards(blocks + (experts ? kExpertModel : kDenseModel) + optimizer, from, to);
  }
}

// Codes of 8 bits, and a scale per block of 8 elements.
TEST(Reshard, EightBitMomentsInAnyLayout) {
  const Sets eight_bit = kOptimizers.back();
  expect_reshards(eight_bit + kDenseModel, layout("zero 3"), layout("tp 2"));
  expect_reshards(eight_bit + kDenseModel, layout("tp 2"), layout("pp 2 zero 1 of 3"));
  expect_reshards(eight_bit + kExpertModel, layout("ep 2 tp 2 zero 3"), layout("ep 2"));
}

// The magnitudes that fp8 scales follow from: without them a continued run would start with other scales.
TEST(Reshard, MagnitudesOfQuantisedValues) {
  const Sets fp8 = {"precision.linear=\"fp8-delayed\"", "model.embed=32", "model.head_dim=16"};
  expect_reshards(fp8 + kDenseModel, layout("zero 3"), layout("tp 2"));
  expect_reshards(fp8 + kDenseModel, layout("pp 2 zero 1 of 3"), layout("cp 2 tp 2 dp 2"));
  expect_reshards(fp8 + kDenseModel, layout("tp 4 zero 3"), layout("tp 4 zero 3"));
  expect_reshards(fp8 + kExpertModel, layout("ep 2 tp 2 zero 3"), layout("ep 2"));
}

TEST(Reshard, TheSameLayoutContinuesInEveryBit) {
  expect_reshards(kOptimizers[0] + kDenseModel, layout("tp 4 zero 3"), layout("tp 4 zero 3"));
  expect_reshards(kOptimizers[3] + kDenseModel, layout("pp 2 zero 1 of 3"), layout("pp 2 zero 1 of 3"));
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

// Loads a checkpoint on all ranks of a layout. Returns the bytes that they read together.
int64_t bytes_read(const config::Recipe& recipe, const base::Path& from) {
  std::atomic<int64_t> bytes = 0;
  comm::run_local_world(static_cast<int>(recipe.parallel.world()), [&](comm::World& world) {
    train::Rank rank(recipe, world, {});
    checkpoint::Reader reader(from);
    train::load_state(rank, reader, train::LoadOptions{});
    bytes += reader.bytes_read();
  });
  return bytes;
}

// However many ranks hold the same state, one of them reads it.
TEST(SavedState, ReplicasReadACheckpointOnce) {
  const test::TempFolder folder;
  run_steps(recipe_of({}), corpus(), folder.path(), 0, 1, {});
  const base::Path saved = checkpoint::find_checkpoint(folder.path());
  const int64_t bytes = checkpoint::Reader(saved).manifest().tensor_bytes();
  for (const Sets& sets : {Sets{"parallel.dp_replicate=4"},
                           Sets{"parallel.dp_replicate=2", "parallel.dp_shard=2", "parallel.zero=1"},
                           Sets{"parallel.dp_shard=2", "parallel.zero=3"}}) {
    const int64_t read = bytes_read(recipe_of(sets), saved);
    EXPECT_GE(read, bytes);
    // A chunk that two ranks need parts of is read by both: here a chunk is a tensor.
    EXPECT_LE(read, sets.size() == 1 ? bytes : 2 * bytes) << sets[0];
  }
}

// Ranks that wait for a part are notified.
TEST(SavedState, ADamagedPartEndsTheLoadOfAllReplicas) {
  const test::TempFolder folder;
  run_steps(recipe_of({}), corpus(), folder.path(), 0, 1, {});
  const base::Path saved = checkpoint::find_checkpoint(folder.path()),
                   shard = saved / "rank-00000.safetensors";
  std::string bytes = base::read_file(shard);
  bytes[bytes.size() / 2] ^= 1;
  base::write_file_atomically(shard, bytes);
  EXPECT_CONTAINS(user_error([&] { bytes_read(recipe_of({"parallel.dp_replicate=4"}), saved); }),
                  "is damaged");
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

// Parameters that are never updated are written once; later checkpoints have the same file, also those of a
// run that was stopped and continued in the same layout.
TEST(SavedState, FrozenParametersAreLinked) {
  const SmallRun small;
  const Sets sets = {"checkpoint.every=2", "checkpoint.keep=5",
                     "optimizer.groups=[{match=\"*ffn*\", update=false}]"};
  const auto frozen = [&](int step, int rank) {
    return small / fmt::format("run/checkpoints/step-0000000{}/frozen-0000{}.safetensors", step, rank);
  };
  small.train(sets);
  small.train(sets + Sets{"run.steps=8"});
  for (const int rank : {0, 1, 2, 3}) {
    EXPECT_TRUE(std::filesystem::equivalent(frozen(2, rank), frozen(6, rank)));
    EXPECT_TRUE(std::filesystem::equivalent(frozen(2, rank), frozen(8, rank))) << "continued";
  }
  checkpoint::Reader reader(small / "run/checkpoints/step-00000008");
  reader.verify();
  EXPECT_EQ(reader.manifest().files.size(), 8u);
  // In another layout the files of earlier checkpoints have other pieces.
  small.train(sets + Sets{"run.steps=9", "parallel.tp=1", "parallel.sequence_parallel=false"});
  EXPECT_FALSE(std::filesystem::equivalent(frozen(8, 0), frozen(9, 0)));
  const auto before = tensors_of(small / "run/checkpoints/step-00000002"),
             after = tensors_of(small / "run/checkpoints/step-00000009");
  for (const auto& [name, bytes] : before)
    if (name.find("ffn") != std::string::npos) {
      EXPECT_TRUE(after.at(name) == bytes) << name;
    }
  // Each stays whole without the others.
  checkpoint::Store store(small / "run/checkpoints");
  const auto last = tensors_of(small / "run/checkpoints/step-00000008");
  for (const checkpoint::Entry& entry : store.list())
    if (entry.step != 8) store.remove(entry);
  checkpoint::Reader(small / "run/checkpoints/step-00000008").verify();
  EXPECT_TRUE(tensors_of(small / "run/checkpoints/step-00000008") == last);
}

// A checkpoint says how many steps are done: their records are flushed before it is complete.
TEST(SavedState, OtherFilesAreFlushedBeforeTheManifest) {
  const test::TempFolder folder;
  config::Recipe recipe = recipe_of({"checkpoint.every=1"});
  recipe.checkpoint.dir = folder.path().string();
  int flushed = 0;
  class Manifests : public QuickFiles {
   public:
    explicit Manifests(const int& flushed) : flushed_(flushed) {}
    void rename(const base::Path& from, const base::Path& to) override {
      if (to.filename() == checkpoint::kManifestFile) flushed_then.push_back(flushed_);
      FileSystem::rename(from, to);
    }
    std::vector<int> flushed_then;

   private:
    const int& flushed_;
  } files(flushed);
  comm::run_local_world(1, [&](comm::World& world) {
    train::Rank rank(recipe, world, {});
    train::Checkpointer checkpoints(
        rank, world, recipe, [] { return to_json(train::RunState{}); }, [](const std::string&) {}, files);
    checkpoints.set_before_commit([&] { ++flushed; });
    checkpoints.save(1);
    checkpoints.finish();
    checkpoints.save_last(2, train::Checkpointer::Older::Prune, {});
  });
  EXPECT_EQ(files.flushed_then, (std::vector<int>{1, 2}));
}

// What the plan says of the rank that copies most is what that rank copies.
TEST(SavedState, StagingMemoryIsPlannedExactly) {
  const Sets frozen = {"optimizer.groups=[{match=\"*ffn*\", update=false}]"};
  const std::vector<std::pair<const LayoutCase*, Sets>> cases = {
      {&layout("pp 2"), kDenseModel},
      {&layout("pp 2"), kDenseModel + Sets{"model.tied=true"}},
      {&layout("pp 2 of 2 chunks"), kDenseModel + Sets{"model.layers=4"}},
      {&layout("zero 2"), kDenseModel + frozen},
      {&layout("zero 3 of 2, twice"), kDenseModel + frozen},
      {&layout("tp 4 zero 3"), kDenseModel + kOptimizers.back()},
      {&layout("cp 2 tp 2 dp 2"),
       kDenseModel + Sets{"precision.compute=\"bf16\"", "precision.master=\"split\""}},
      {&layout("ep 4 zero 2"), kExpertModel},
      {&layout("ep 2 tp 2 zero 3"), kExpertModel},
      {&layout("pp 2 ep 2 zero 1"), kExpertModel + kOptimizers[8]},
      {&layout("tp 2"), kDenseModel + kOptimizers[3]}};
  for (const auto& [of, sets] : cases) {
    SCOPED_TRACE(of->name);
    const test::TempFolder folder;
    config::Recipe recipe = recipe_of(sets + of->sets + Sets{"checkpoint.every=2"});
    recipe.checkpoint.dir = folder.path().string();
    const compiler::Ranks classes =
        compiler::compile_classes_unverified(recipe, {.rank = base::RankId(0)}, 1);
    std::vector<int64_t> staged(static_cast<size_t>(recipe.parallel.world()));
    comm::run_local_world(static_cast<int>(recipe.parallel.world()), [&](comm::World& world) {
      train::Rank rank(recipe, world, {});
      const train::Checkpointer checkpoints(
          rank, world, recipe, [] { return checkpoint::Json::object(); }, [](const std::string&) {});
      staged[static_cast<size_t>(world.rank().value)] = checkpoints.staging_bytes();
    });
    const layout::Mesh& mesh = classes.layout.mesh;
    for (size_t place = 0; place < classes.program.size(); ++place) {
      const program::SavedByClass saved =
          program::saved_by_class(classes.program[place].program, classes.program[place].groups,
                                  classes.states, classes.layout, static_cast<int>(place));
      int64_t most = 0;
      for (size_t r = 0; r < staged.size(); ++r)
        if (mesh.index(base::RankId(static_cast<int>(r)), classes.layout.pipeline) == static_cast<int>(place))
          most = std::max(most, staged[r]);
      EXPECT_EQ(saved.most.total(), most) << "stage " << place;
    }
  }
}

TEST(SavedState, TheIntervalFollowsFromCostAndFailures) {
  // One failure in 50 hours of 1,000 devices; each save stops training for 2 s: every 13.9 min (Young).
  const double failures = config::Checkpoint().failures, day = 86400;
  EXPECT_NEAR(failures, base::kFailuresPerDeviceHour * 24 * 1000, 5e-5) << "the default";
  EXPECT_NEAR(train::auto_interval(2, 1, 1000, failures), std::sqrt(2 * 2 * day / failures), 1e-9);
  EXPECT_NEAR(train::auto_interval(2, 1, 1000, 4 * failures), std::sqrt(2 * 2 * day / failures) / 2, 1e-9);
  EXPECT_EQ(train::auto_interval(1e-6, 500, 1000, failures), 1000) << "a save takes longer";
  EXPECT_EQ(train::auto_interval(0, 0, 1, failures), 1);
  // The step beside the copy took 90 ms more; more than the copy is other noise, less is none.
  EXPECT_NEAR(train::overlapped_cost(0.002, 1.0, 1.09, 0.1), 0.092, 1e-9);
  EXPECT_NEAR(train::overlapped_cost(0.002, 1.0, 3.0, 0.1), 0.102, 1e-9);
  EXPECT_EQ(train::overlapped_cost(0.002, 1.0, 0.9, 0.1), 0.002);
}

// ---- file systems that fail

// Fails once, at the n-th call that changes something; all calls are counted.
class FailsOnce : public base::FileSystem {
 public:
  explicit FailsOnce(int64_t at) : left_(at) {}
  int64_t calls() const { return calls_; }
  int create(const base::Path& path) override { return count(path), FileSystem::create(path); }
  void write(int file, const base::Path& path, int64_t position, std::span<const std::byte> bytes) override {
    count(path), FileSystem::write(file, path, position, bytes);
  }
  void sync(int, const base::Path& path) override { count(path); }
  void close(int file, const base::Path& path) override {
    FileSystem::close(file, path);
    count(path);
  }
  void rename(const base::Path& from, const base::Path& to) override {
    count(from), FileSystem::rename(from, to);
  }
  void make_directory(const base::Path& path) override { count(path), FileSystem::make_directory(path); }
  void sync_directory(const base::Path& path) override { count(path); }

 private:
  void count(const base::Path& path) {
    ++calls_;
    if (left_-- == 0) base::fail_writing("write", path, ENOSPC);
  }
  int64_t left_, calls_ = 0;
};

// Whichever call of the last save fails, its second attempt is complete, and the checkpoint before it intact.
TEST(LastState, AFaultAtACallLosesNothing) {
  const test::TempFolder folder;
  config::Recipe recipe = recipe_of({});
  comm::run_local_world(1, [&](comm::World& world) {
    train::Rank rank(recipe, world, {});
    const auto save_both = [&](const std::string& name, FailsOnce& files) {
      recipe.checkpoint.dir = (folder / name).string();
      QuickFiles good;
      const auto state = [] { return to_json(train::RunState{}); };
      const auto say = [](const std::string&) {};
      train::Checkpointer(rank, world, recipe, state, say, good).save(1);
      train::Checkpointer last(rank, world, recipe, state, say, files);
      last.set_pause(std::chrono::milliseconds(0));
      return last.save_last(2, train::Checkpointer::Older::Keep, {folder / (name + "-elsewhere")});
    };
    FailsOnce none(-1);
    save_both("none", none);
    const int64_t calls = none.calls();
    ASSERT_GT(calls, 15);
    // Most calls write one piece after the other: some of those are enough.
    for (int64_t at = 0; at < calls; at += at < 3 || at > calls - 20 ? 1 : 29) {
      FailsOnce files(at);
      const std::string name = std::to_string(at);
      const train::Checkpointer::Last last = save_both(name, files);
      EXPECT_EQ(last.failures, "") << "call " << at;
      EXPECT_EQ(last.folder, checkpoint::Store(folder / name).folder_of(2));
      checkpoint::Reader(last.folder).verify();
      checkpoint::Reader(checkpoint::Store(folder / name).folder_of(1)).verify();
    }
  });
}

// Removing older checkpoints fails: the new one is complete, and the run says why they stay.
TEST(LastState, AFailedPruneIsAWarning) {
  class KeepsFiles : public test::QuickFiles {
    void remove_file(const base::Path& path) override { base::fail_writing("remove", path, EIO); }
  };
  const test::TempFolder folder;
  config::Recipe recipe = recipe_of({"checkpoint.every=1", "checkpoint.keep=1"});
  recipe.checkpoint.dir = folder.path().string();
  comm::run_local_world(1, [&](comm::World& world) {
    train::Rank rank(recipe, world, {});
    KeepsFiles files;
    std::vector<std::string> lines;
    train::Checkpointer checkpoints(
        rank, world, recipe, [] { return to_json(train::RunState{}); },
        [&](const std::string& line) { lines.push_back(line); }, files);
    for (const int64_t step : {1, 2}) {
      checkpoints.save(step);
      checkpoints.finish();
    }
    checkpoints.save_last(3, train::Checkpointer::Older::Prune, {});
    for (const int64_t step : {1, 2, 3})
      checkpoint::Reader(checkpoint::Store(folder.path()).folder_of(step)).verify();
    EXPECT_EQ(std::count_if(lines.begin(), lines.end(),
                            [](const std::string& line) {
                              return line.starts_with("warning: older checkpoints stay");
                            }),
              2);
  });
}

// Writes take long, as on a busy shared file system: training goes on meanwhile.
TEST(SavedState, ASlowFileSystemDoesNotStopTraining) {
  class SlowFiles : public base::FileSystem {
    void sync(int, const base::Path&) override {
      std::this_thread::sleep_for(std::chrono::milliseconds(600));
    }
    void sync_directory(const base::Path&) override {}
  } slow;
  const test::TempFolder folder;
  config::Recipe recipe = recipe_of({"parallel.dp_shard=2", "checkpoint.every=1"});
  recipe.checkpoint.dir = folder.path().string();
  const train::RunData data = train::make_data(recipe, corpus());
  comm::run_local_world(2, [&](comm::World& world) {
    train::Rank rank(recipe, world, {});
    train::Checkpointer checkpoints(
        rank, world, recipe, [] { return to_json(train::RunState{}); }, [](const std::string&) {}, slow);
    rank.step(0, data.train);
    const int64_t begin = base::now_ns();
    checkpoints.save(1);
    const int64_t stopped = base::now_ns() - begin;
    rank.step(1, data.train);
    const bool was_busy = checkpoints.flags(0).busy != 0;
    checkpoints.finish();
    const int64_t complete = base::now_ns() - begin;
    EXPECT_TRUE(was_busy) << "the write had finished before a step did";
    EXPECT_GT(complete, 1'000'000'000) << "a shard, then the manifest";
    EXPECT_LT(stopped, complete / 4);
  });
  // What was saved is the state after step 1, although step 2 has changed it meanwhile.
  run_steps(recipe, corpus(), folder / "one", 0, 1, {});
  EXPECT_TRUE(tensors_of(folder.path()) == tensors_of(folder / "one"));
}

// A disk that becomes full while a checkpoint is written ends the run at the next step, with the cause; the
// checkpoint before it is intact.
TEST(SavedState, AFailedWriteEndsTheRunWithItsCause) {
  class FullFiles : public base::FileSystem {
   public:
    void write(int file, const base::Path& path, int64_t at, std::span<const std::byte> bytes) override {
      if (path.string().find("step-00000004/rank-00001") != std::string::npos)
        base::fail_writing("write", path, ENOSPC);
      FileSystem::write(file, path, at, bytes);
    }
  } full;
  const test::TempFolder folder;
  config::Recipe recipe = recipe_of({"parallel.dp_shard=2", "checkpoint.every=1"});
  recipe.checkpoint.dir = folder.path().string();
  std::string messages[2];
  comm::run_local_world(2, [&](comm::World& world) {
    train::Rank rank(recipe, world, {});
    train::Checkpointer checkpoints(
        rank, world, recipe, [] { return to_json(train::RunState{}); }, [](const std::string&) {}, full);
    checkpoints.set_pause(std::chrono::milliseconds(0));
    checkpoints.save(3);
    checkpoints.save(4);
    try {
      for (int n = 0; n < 10000; ++n) {  // step boundaries
        const train::Checkpointer::Flags mine = checkpoints.flags(0);
        int32_t all[3] = {mine.busy, mine.failed, mine.due};
        world.world().all_reduce(all, 3, base::DType::I32, comm::ReduceOp::Max);
        checkpoints.advance({.busy = all[0], .failed = all[1], .due = all[2]});
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    } catch (const train::SaveFailed& e) {  // all ranks
      messages[world.rank().value] = e.what();
    }
    EXPECT_FALSE(base::directory_exists(checkpoint::Store(folder.path()).folder_of(4)))
        << "what it had written takes space";
    // The state is in memory: it is saved as at the end of any run.
    const train::Checkpointer::Last last = checkpoints.save_last(5, train::Checkpointer::Older::Prune, {});
    EXPECT_EQ(last.failures, "");
  });
  EXPECT_EQ(messages[0], messages[1]);
  EXPECT_CONTAINS(messages[0], "the checkpoint of step 4 could not be written: ");
  EXPECT_CONTAINS(messages[0], "rank-00001.safetensors");
  EXPECT_CONTAINS(messages[0], "No space left");
  EXPECT_CONTAINS(messages[0], "earlier ones are intact");
  const checkpoint::Store store(folder.path());
  EXPECT_EQ(store.newest()->step, 5);
  for (const int64_t step : {3, 5}) checkpoint::Reader(store.folder_of(step)).verify();
  EXPECT_TRUE(tensors_of(store.folder_of(3)) == tensors_of(store.folder_of(5)));
}

// "auto" says what it chose, as soon as a save was measured.
TEST(SavedState, TheAutomaticIntervalIsReported) {
  const test::TempFolder folder;
  config::Recipe recipe = recipe_of({"checkpoint.every=\"auto\""});
  recipe.checkpoint.dir = folder.path().string();
  comm::run_local_world(1, [&](comm::World& world) {
    train::Rank rank(recipe, world, {});
    QuickFiles files;
    std::vector<std::string> lines;
    train::Checkpointer checkpoints(
        rank, world, recipe, [] { return to_json(train::RunState{}); },
        [&](const std::string& line) { lines.push_back(line); }, files);
    EXPECT_EQ(checkpoints.auto_seconds(), 0);
    checkpoints.save(1);
    checkpoints.finish();
    EXPECT_GE(checkpoints.auto_seconds(), 1);
    EXPECT_CONTAINS(lines.back(), "; checkpoint.every = \"auto\": every ");
  });
  train::Summary summary;
  summary.auto_seconds = 90;
  EXPECT_CONTAINS(to_json(summary), "\"checkpoint_every_seconds\": 90");
  const std::vector<std::string> lines = summary_lines(summary, train::RunFolder("x"));
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "checkpoints  every 1m 30s (checkpoint.every = \"auto\")"),
            1)
      << lines[0];
}

TEST(SavedState, AFolderThatCannotBeWrittenIsRefusedBeforeTheFirstStep) {
  const SmallRun small;
  base::write_file_atomically(small / "file", "x");
  const std::string message =
      user_error([&] { small.train({"checkpoint.dir=\"" + (small / "file/below").string() + "\""}); });
  EXPECT_CONTAINS(message, "file/below");
  EXPECT_FALSE(base::file_exists(small.run_folder().recipe_file()));
}

// Under Slurm: a save is due early enough for two steps, two saves and half a minute.
TEST(SavedState, ASaveIsDueBeforeTheJobEnds) {
  const config::Recipe recipe = recipe_of({});
  comm::run_local_world(1, [&](comm::World& world) {
    train::Rank rank(recipe, world, {});
    int lines = 0;
    train::Checkpointer checkpoints(
        rank, world, recipe, [] { return to_json(train::RunState{}); }, [&](const std::string&) { ++lines; });
    checkpoints.set_deadline(base::wall_seconds() + 100);
    EXPECT_EQ(checkpoints.flags(10).due, 0);
    EXPECT_EQ(checkpoints.flags(50).due, 1) << "two steps take until the end";
    EXPECT_EQ(checkpoints.flags(50).due, 0) << "once";
    EXPECT_EQ(lines, 1);
  });
}

// A save that takes long is due earlier, by what the last one took.
TEST(SavedState, ASlowSaveIsDueEarlier) {
  class SlowFiles : public base::FileSystem {
    void sync(int, const base::Path&) override {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
    }
    void sync_directory(const base::Path&) override {}
  } slow;
  const test::TempFolder folder;
  config::Recipe recipe = recipe_of({});
  recipe.checkpoint.dir = folder.path().string();
  comm::run_local_world(1, [&](comm::World& world) {
    train::Rank rank(recipe, world, {});
    train::Checkpointer checkpoints(
        rank, world, recipe, [] { return to_json(train::RunState{}); }, [](const std::string&) {}, slow);
    checkpoints.set_deadline(base::wall_seconds() + 100);
    EXPECT_EQ(checkpoints.flags(0.01).due, 0);
    checkpoints.save(1);
    checkpoints.set_deadline(base::wall_seconds() + 30 + 2);  // two saves take 3 s
    EXPECT_EQ(checkpoints.flags(0.01).due, 1);
  });
}

TEST(SavedState, CheckpointsThatWillNotFitAreAnnounced) {
  config::Recipe recipe = recipe_of({"checkpoint.every=1", "checkpoint.keep_every=1"});
  const test::TempFolder folder;
  recipe.checkpoint.dir = folder.path().string();
  comm::run_local_world(1, [&](comm::World& world) {
    train::Rank rank(recipe, world, {});
    for (const int64_t steps : {int64_t{8}, int64_t{1} << 50}) {
      recipe.run.steps = steps;
      std::string line;
      train::Checkpointer(
          rank, world, recipe, [] { return to_json(train::RunState{}); },
          [&](const std::string& said) { line = said; })
          .require_space();
      if (steps == 8)
        EXPECT_EQ(line, "");
      else
        EXPECT_CONTAINS(line, "checkpoint.keep_every = 1 keeps up to 1125899906842624 checkpoints");
    }
  });
}

}  // namespace
}  // namespace quintet
