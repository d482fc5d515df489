#include "train/loop.h"

#include <signal.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <map>
#include <mutex>
#include <thread>

#include "observe/trace.h"
#include "train/support.h"

namespace quintet {
namespace {

using test::kOneRank;
using test::read_json;
using test::read_metrics;
using test::SmallRun;
using test::user_error;

std::vector<std::string> with(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(Loop, ATinyRunLearnsAndLeavesItsFolder) {
  const SmallRun small;
  const train::RunResult result = small.train({"run.steps=30", "eval.every=10"});
  EXPECT_EQ(result.summary.end, train::RunEnd::Finished);
  EXPECT_LT(result.summary.last_loss, 0.7 * result.summary.first_loss);

  const auto metrics = read_metrics(small.run_folder().metrics());
  ASSERT_EQ(metrics.size(), 30u);
  int64_t tokens = 0;
  for (size_t i = 0; i < metrics.size(); ++i) {
    const auto& m = metrics[i];
    EXPECT_EQ(m.at("step"), i + 1);
    for (const char* key : {"loss", "grad_norm", "lr", "tokens_per_s"})
      EXPECT_TRUE(m.at(key).is_number()) << key;
    EXPECT_FALSE(m.contains("skipped"));
    EXPECT_EQ(m.contains("eval_loss"), (i + 1) % 10 == 0) << "step " << i + 1;
    tokens += m.at("tokens").get<int64_t>();
  }
  EXPECT_EQ(metrics.front().at("loss"), result.summary.first_loss) << "floats read back bit-equal";
  EXPECT_EQ(metrics.back().at("loss"), result.summary.last_loss);

  const auto summary = read_json(small.run_folder().summary());
  EXPECT_EQ(summary.at("ended"), "finished");
  EXPECT_EQ(summary.at("steps"), 30);
  EXPECT_EQ(summary.at("first_loss"), result.summary.first_loss);
  EXPECT_EQ(summary.at("last_loss"), result.summary.last_loss);
  EXPECT_EQ(summary.at("tokens"), tokens);
  EXPECT_GT(summary.at("tokens_per_s").get<double>(), 0);
  ASSERT_EQ(summary.at("evaluations").size(), 3u);
  EXPECT_EQ(summary.at("evaluations")[2].at("loss"), metrics.back().at("eval_loss"));
  ASSERT_EQ(summary.at("ranks").size(), 4u);
  for (const auto& rank : summary.at("ranks")) {
    EXPECT_GT(rank.at("planned_peak_bytes").get<int64_t>(), 0);
    EXPECT_EQ(rank.at("planned_peak_bytes"), rank.at("measured_peak_bytes"));
  }
  // recipe.toml is the resolved recipe: reading it again changes nothing.
  EXPECT_EQ(config::load(small.run_folder().recipe_file().string()),
            small.recipe({"run.steps=30", "eval.every=10"}));
  EXPECT_FALSE(base::file_exists(small.run_folder().trace()));
}

// Everything but timings.
std::string without_times(const base::Path& path) {
  std::string text;
  for (nlohmann::json m : read_metrics(path)) {
    m.erase("tokens_per_s");
    text += m.dump() + "\n";
  }
  return text;
}

TEST(Loop, TheSameSeedGivesTheSameBits) {
  const SmallRun a, b;
  a.train({"eval.every=3"});
  b.train({"eval.every=3"});
  EXPECT_EQ(without_times(a.run_folder().metrics()), without_times(b.run_folder().metrics()));
  EXPECT_TRUE(test::tensors_of(a.run_dir()) == test::tensors_of(b.run_dir()));
  const SmallRun c;
  c.train({"eval.every=3", "run.seed=7"});
  EXPECT_NE(without_times(a.run_folder().metrics()), without_times(c.run_folder().metrics()));
}

TEST(Loop, TheNumberOfKernelThreadsDoesNotChangeABit) {
  const SmallRun a, b;
  a.train(kOneRank);
  b.train(with(kOneRank, {"run.threads=3"}));
  EXPECT_EQ(without_times(a.run_folder().metrics()), without_times(b.run_folder().metrics()));
}

TEST(Loop, TheLayoutDoesNotChangeTheLosses) {
  const SmallRun a, b;
  a.train({"precision.compute=f64", "eval.every=2"});
  b.train(with(kOneRank, {"precision.compute=f64", "eval.every=2"}));
  const auto x = read_metrics(a.run_folder().metrics()), y = read_metrics(b.run_folder().metrics());
  ASSERT_EQ(x.size(), y.size());
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(x[i].at("tokens"), y[i].at("tokens"));
    for (const char* key : {"loss", "grad_norm", "eval_loss"})
      if (x[i].contains(key)) {
        EXPECT_NEAR(x[i].at(key).get<double>(), y[i].at(key).get<double>(), 1e-10) << key << " " << i;
      }
  }
}

TEST(Loop, SgdLearns) {
  const SmallRun small;
  const auto result = small.train({"optimizer.name=sgd", "optimizer.lr=0.5", "optimizer.momentum=0.9",
                                   "optimizer.weight_decay=0", "run.steps=15"});
  EXPECT_LT(result.summary.last_loss, 0.8 * result.summary.first_loss);
}

TEST(Loop, NarrowTypesLearn) {
  for (const char* type : {"bf16", "f16"}) {
    SCOPED_TRACE(type);
    const SmallRun small;
    const auto result = small.train({std::string("precision.compute=") + type, "run.steps=15"});
    EXPECT_LT(result.summary.last_loss, 0.8 * result.summary.first_loss);
    for (const auto& rank : result.summary.ranks)
      EXPECT_EQ(rank.planned_peak_bytes, rank.measured_peak_bytes);
  }
}

TEST(Loop, TraceCoversTheStepsOnEveryStreamOfEveryRank) {
  const SmallRun small;
  train::RunOptions options;
  options.trace = train::parse_trace_range("steps=2-3");
  small.train({}, options);
  std::set<int64_t> steps;
  std::set<std::pair<int, std::string>> streams;
  std::set<std::pair<int, observe::Category>> categories;
  for (const observe::TraceRecord& r : observe::read_trace(small.run_folder().trace())) {
    steps.insert(r.args.at("step"));
    streams.insert({r.rank, r.stream});
    categories.insert({r.rank, r.category});
    EXPECT_GE(r.start_ns, 0);
  }
  EXPECT_EQ(steps, (std::set<int64_t>{2, 3}));
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_TRUE(streams.contains({rank, "compute"})) << rank;
    EXPECT_TRUE(categories.contains({rank, observe::Category::Compute})) << rank;
    EXPECT_TRUE(categories.contains({rank, observe::Category::Communication})) << rank;
  }
  EXPECT_EQ(streams.size(), 4u * 3u) << "compute, tp and dp on each rank";
}

TEST(Loop, TraceRangesAreReadOrRefused) {
  EXPECT_EQ(train::parse_trace_range("steps=5-6").last, 6);
  EXPECT_EQ(train::parse_trace_range("steps=4").first, 4);
  EXPECT_EQ(train::parse_trace_range("steps=4").last, 4);
  for (const char* bad : {"", "5-6", "steps=", "steps=0-2", "steps=6-5", "steps=1-", "steps=a", "steps=1-2x"})
    EXPECT_CONTAINS(user_error([&] { train::parse_trace_range(bad); }), "steps=5-6");
}

TEST(Loop, StopsAfterTooManyNonFiniteSteps) {
  const SmallRun small;
  // The first update pushes the weights out of the range of f32; every later step is skipped.
  const auto result = small.train({"optimizer.lr=1e38", "optimizer.clip_norm=0", "optimizer.weight_decay=0",
                                   "run.max_skipped_steps=3", "run.steps=50"});
  EXPECT_EQ(result.summary.end, train::RunEnd::NonFinite);
  EXPECT_EQ(result.summary.skipped_steps, 3);
  EXPECT_LT(result.summary.steps, 50);
  EXPECT_CONTAINS(result.message, "3 consecutive steps");
  EXPECT_CONTAINS(result.message, "run.max_skipped_steps = 3");
  const auto metrics = read_metrics(small.run_folder().metrics());
  EXPECT_EQ(metrics.back().at("skipped"), true);
  EXPECT_FALSE(metrics.front().contains("skipped"));
  EXPECT_EQ(read_json(small.run_folder().summary()).at("ended"), "non-finite");
}

TEST(Loop, AnInterruptionOnOneRankEndsAllCleanly) {
  const SmallRun small;
  train::RunOptions options;
  options.long_step_seconds = 1e9;  // also on a busy machine
  std::atomic<int> asked{0};
  options.interrupted = [&] {
    return asked.fetch_add(1) == 17 ? SIGTERM : 0;
  };  // one rank, at the third boundary: it is also asked before the first step and between its micro-batches
  const auto result = small.train({"run.steps=50"}, options);
  EXPECT_EQ(result.summary.end, train::RunEnd::Interrupted);
  EXPECT_EQ(result.signal, SIGTERM);
  EXPECT_EQ(result.summary.steps, 3);
  EXPECT_EQ(read_metrics(small.run_folder().metrics()).size(), 3u);
  EXPECT_EQ(read_json(small.run_folder().summary()).at("ended"), "interrupted");
  EXPECT_EQ(checkpoint::Store(small.run_dir() / "checkpoints").newest()->step, 3);
}

// Every rank reports its passes over micro-batches, in a pipeline too: a stop that waits for the step can say
// how long that takes.
TEST(Loop, ProgressWithinAStepIsReported) {
  for (const char* stages : {"parallel.pp=1", "parallel.pp=2"}) {
    SCOPED_TRACE(stages);
    const SmallRun small;
    std::mutex mutex;
    std::map<std::thread::id, std::vector<std::pair<int, int>>> calls;
    train::RunOptions options;
    options.on_progress = [&](int done, int all) {
      const std::lock_guard lock(mutex);
      calls[std::this_thread::get_id()].emplace_back(done, all);
    };
    auto sets = kOneRank;
    for (const char* set : {stages, "batch.micro=1", "run.steps=2", "eval.every=1"}) sets.emplace_back(set);
    small.train(sets, options);
    EXPECT_EQ(calls.size(), stages == std::string("parallel.pp=2") ? 2u : 1u);
    for (const auto& [thread, list] : calls) {
      int begun = 0, last = 0;
      for (const auto& [done, all] : list) {
        if (done == 0) {
          ++begun;
        } else {
          EXPECT_GT(done, last);
          EXPECT_LT(done, all);
          EXPECT_GE(all, 8) << "the micro-batches";
        }
        last = done;
      }
      EXPECT_EQ(begun, 2) << "evaluations are no steps";
      EXPECT_GE(list.size(), 2 * 8u);
    }
  }
}

TEST(Loop, AFolderThatIsRemovedDuringTheRunIsReported) {
  const SmallRun small;
  train::RunOptions options;
  std::atomic<int> asked{0};
  options.interrupted = [&]() -> int {
    if (asked.fetch_add(1) == 2) std::filesystem::remove_all(small.run_dir());
    return 0;
  };
  const train::RunResult result = small.train(kOneRank, options);
  EXPECT_CONTAINS(result.incomplete, "was removed or moved during the run");
  EXPECT_CONTAINS(result.incomplete, "[Q9004]");
  EXPECT_EQ(checkpoint::Store(small.run_dir() / "checkpoints").newest()->step, 6);
  EXPECT_TRUE(base::file_exists(small.run_dir() / "recipe.toml"));
}

TEST(Loop, AFailingRankIsNamed) {
  const SmallRun small;
  train::RunOptions options;
  std::atomic<int> asked{0};
  options.interrupted = [&]() -> int {
    if (asked.fetch_add(1) == 5) throw std::runtime_error("the disk is on fire");
    return 0;
  };
  try {
    small.train({}, options);
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& e) {
    EXPECT_CONTAINS(e.what(), " of 4: the disk is on fire");
    EXPECT_EQ(std::string(e.what()).substr(0, 5), "rank ");
  }
  EXPECT_FALSE(base::file_exists(small.run_folder().summary()));
}

TEST(Loop, ARunFolderIsNotOverwrittenUnasked) {
  const SmallRun small;
  small.train();
  const std::string metrics = base::read_file(small.run_folder().metrics());
  const std::string message = user_error([&] { small.train({"run.steps=2"}); });
  EXPECT_CONTAINS(message, "--overwrite");
  EXPECT_CONTAINS(message, "--run-dir");
  EXPECT_EQ(base::read_file(small.run_folder().metrics()), metrics);
  train::RunOptions options;
  options.overwrite = true;
  small.train({"run.steps=2"}, options);
  EXPECT_EQ(read_metrics(small.run_folder().metrics()).size(), 2u);
}

// `cd experiment; quintet train recipe.toml --run-dir .`: the recipe is the run's own, but for its comments.
TEST(Loop, TheRecipeOfTheUserIsNotReplacedByTheSameRecipe) {
  const SmallRun small;
  const std::string mine = "# mine\n" + base::read_file(small.recipe_file());
  for (const bool with_metrics : {false, true}) {
    base::make_directories(small.run_dir());
    base::write_file_atomically(small.run_folder().recipe_file(), mine);
    if (with_metrics) base::write_file_atomically(small.run_folder().metrics(), "");
    EXPECT_CONTAINS(user_error([&] { small.train(kOneRank); }), "recipe.toml");
    EXPECT_EQ(base::read_file(small.run_folder().recipe_file()), mine);
  }
}

TEST(Loop, FilesOfTheUserAreNotOverwrittenUnasked) {
  for (const char* name : {"recipe.toml", "metrics.jsonl", "summary.json", "trace.json", "schedule.txt"}) {
    const SmallRun small;
    base::make_directories(small.run_dir());
    base::write_file_atomically(small.run_dir() / name, "# mine");
    const std::string message = user_error([&] { small.train(kOneRank); });
    EXPECT_CONTAINS(message, name);
    EXPECT_CONTAINS(message, "--overwrite");
    EXPECT_EQ(base::read_file(small.run_dir() / name), "# mine");
    EXPECT_EQ(base::list_files(small.run_dir()).size(), 1u);
  }
}

TEST(Loop, TwoRunsDoNotShareAFolder) {
  const SmallRun small;
  std::string message;
  train::RunOptions options;
  options.on_step = [&](int64_t step, const train::StepResult&) {
    if (step == 1)
      message = user_error([&] { (void)small.run_folder().acquire(0, train::Existing::Replace); });
  };
  small.train(kOneRank, options);
  EXPECT_CONTAINS(message, "another run is writing to");
  EXPECT_CONTAINS(message, "process ");
  EXPECT_FALSE(base::file_exists(small.run_folder().lock())) << "a finished run leaves no lock";
  // Between the first look at the folder and its lock, another run may have finished.
  EXPECT_CONTAINS(user_error([&] { (void)small.run_folder().acquire(0, train::Existing::Refuse); }),
                  "already contains a run");
  base::write_file_atomically(small.run_folder().lock(), "quintet lock: a process that was killed");
  options = {};
  options.overwrite = true;
  EXPECT_EQ(small.train(kOneRank, options).summary.steps, 6);
}

TEST(Loop, ARunThatEndsNonFiniteIsNotFinished) {
  const SmallRun small;
  std::vector<std::string> sets = kOneRank;
  sets.insert(sets.end(), {"optimizer.lr=1e38", "optimizer.clip_norm=0", "optimizer.weight_decay=0",
                           "run.max_skipped_steps=1000"});
  const train::RunResult result = small.train(sets);
  EXPECT_EQ(result.summary.end, train::RunEnd::NonFinite);
  EXPECT_CONTAINS(result.message, "without a finite result");
}

// A finite loss whose gradient is not: the last steps are skipped, fewer than run.max_skipped_steps.
TEST(Loop, ARunWhoseLastStepsHaveNoFiniteGradientIsNotFinished) {
  const SmallRun small;
  std::vector<std::string> sets = kOneRank;
  sets.insert(sets.end(), {"optimizer.lr=1e30", "run.max_skipped_steps=1000"});
  const train::RunResult result = small.train(sets);
  EXPECT_EQ(result.summary.end, train::RunEnd::NonFinite);
  EXPECT_TRUE(std::isfinite(result.summary.last_loss));
  EXPECT_GT(result.summary.non_finite_at_end, 0);
  EXPECT_LT(result.summary.skipped_steps, result.summary.steps);
  EXPECT_CONTAINS(result.message, "without a finite result: the last");
}

TEST(Loop, TooLittleSpaceIsReportedBeforeTheFirstStep) {
  const SmallRun small;
  const std::string message =
      user_error([&] { (void)small.run_folder().acquire(int64_t{1} << 60, train::Existing::Refuse); });
  EXPECT_CONTAINS(message, "1.0 EiB");
  EXPECT_CONTAINS(message, "free");
  EXPECT_FALSE(base::directory_exists(small.run_dir()));
}

TEST(Loop, ACustomModelAndCorpusTrain) {
  const SmallRun small;
  train::RunOptions options;
  options.corpus = data::Corpus::from_documents(
      "numbers", 256, {std::vector<int32_t>(5000, 3), std::vector<int32_t>(5000, 4)});
  options.model = [](const graph::BuildOptions& build) {
    const graph::DimSize vocab = {graph::Dim::Vocab, 256}, embed = {graph::Dim::Embed, 32},
                         ffn = {graph::Dim::Ffn, 64};
    graph::Builder b(build);
    graph::ValueId x = b.embedding(b.weight("embed.weight", {vocab, embed}, 0.02), b.ids());
    b.next_block();
    graph::ValueId y =
        b.gelu(b.linear(x, b.weight("up.weight", {ffn, embed}, 0.02), b.bias("up.bias", {ffn})));
    x = b.add(x, b.linear(y, b.weight("down.weight", {embed, ffn}, 0.02)));
    b.next_block();
    b.head(x, b.weight("head.weight", {vocab, embed}, 0.02));
    return b.finish();
  };
  const auto result = small.train({"data.path=[]", "run.steps=12"}, options);
  EXPECT_LT(result.summary.last_loss, 0.5 * result.summary.first_loss);
  for (const auto& rank : result.summary.ranks) EXPECT_EQ(rank.planned_peak_bytes, rank.measured_peak_bytes);
}

}  // namespace
}  // namespace quintet
