// Training with a user-defined schedule.
#include "schedule/generators.h"
#include "schedule/text.h"
#include "train/support.h"

namespace quintet {
namespace {

using test::read_metrics;
using test::SmallRun;

// Losses, gradient norms and weights of a run; floats are written so that they read back bit-equal.
struct Numbers {
  std::vector<nlohmann::json> steps;
  std::map<std::string, std::string> weights;
  bool operator==(const Numbers&) const = default;
};

Numbers numbers(const SmallRun& small, std::vector<std::string> sets) {
  sets.insert(sets.end(), {"parallel.pp=2", "model.layers=4", "parallel.dp_shard=1", "parallel.zero=0",
                           "batch.accumulation=4", "run.steps=4"});
  small.train(sets, {.overwrite = true});
  Numbers n;
  for (const auto& m : read_metrics(small.run_folder().metrics()))
    n.steps.push_back({{"loss", m.at("loss")}, {"grad_norm", m.at("grad_norm")}});
  n.weights = test::tensors_of(small.run_dir());
  return n;
}

std::string own_schedule(const SmallRun& small) {
  return "parallel.schedule=file:" + (small / "own.txt").string();
}

TEST(ScheduleFile, TrainsToTheBitsOfTheNamedSchedule) {
  const SmallRun small;
  for (const char* name : {"1f1b", "zb-v", "dualpipev"}) {
    const auto s = schedule::make_schedule(name, 2, 0, 4);
    base::write_file_atomically(small / "own.txt", schedule::print(s));
    const Numbers named = numbers(small, {fmt::format("parallel.schedule={}", name)});
    const Numbers own = numbers(small, {own_schedule(small), fmt::format("parallel.chunks={}", s.chunks)});
    ASSERT_EQ(named.steps.size(), 4u);
    EXPECT_TRUE(named == own) << name;
  }
}

TEST(ScheduleFile, ThatNoGeneratorMakesTrainsToTheSameNumbers) {
  // Whole and split backward passes mixed on one rank, weight gradients in 1F1B order: the same sums.
  const SmallRun small;
  base::write_file_atomically(small / "own.txt",
                              "schedule mine\nstages 2\nchunks 1\nmicro_batches 4\nplacement looped\n"
                              "max_in_flight 3 2   # rank 0 runs one more ahead than 1F1B\n"
                              "0: 0F0 0F1 0F2 0BW0 0F3 0B1 0W1 0BW2 0BW3\n"
                              "1: 0F0 0B0 0F1 0W0 0BW1 0F2 0BW2 0F3 0B3 0W3\n");
  const Numbers one = numbers(small, {"parallel.schedule=1f1b"});
  const Numbers own = numbers(small, {own_schedule(small)});
  EXPECT_TRUE(one == own);
}

TEST(ScheduleFile, IsCopiedIntoTheRunFolder) {
  const SmallRun small;
  const std::string text = "# mine\n" + schedule::print(schedule::make_schedule("gpipe", 2, 0, 4));
  base::write_file_atomically(small / "own.txt", text);
  const Numbers first = numbers(small, {own_schedule(small)});
  EXPECT_EQ(base::read_file(small.run_folder().schedule()), text);
  base::remove_file(small / "own.txt");
  // The folder's own recipe refers to the copy and can repeat the run in place.
  const auto again = [&] { return config::load(small.run_folder().recipe_file().string()); };
  EXPECT_EQ(again().parallel.schedule, "file:" + small.run_folder().schedule().string());
  train::run(again, {.overwrite = true});
  EXPECT_EQ(base::read_file(small.run_folder().schedule()), text);
  EXPECT_TRUE(test::tensors_of(small.run_dir()) == first.weights);
  // A run with a named schedule leaves no schedule file.
  numbers(small, {"parallel.schedule=gpipe"});
  EXPECT_FALSE(base::file_exists(small.run_folder().schedule()));
}

}  // namespace
}  // namespace quintet
