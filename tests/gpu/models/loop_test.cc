// Complete runs on a GPU, with and without enqueueing the next step while one runs.
#include "train/loop.h"

#include <csignal>
#include <nlohmann/json.hpp>

#include "base/temp_folder.h"
#include "config/validate.h"
#include "gpu/models/support.h"

namespace quintet {
namespace {

struct Outcome {
  train::RunResult result;
  std::vector<nlohmann::json> metrics;  // without rates
};

// run.max_skipped_steps = 1 keeps a run from running ahead: it may have to stop after any step.
Outcome run_loop(bool ahead, std::vector<std::string> settings, std::function<int()> interrupted = {},
                 std::optional<train::TraceRange> trace = {}) {
  const test::TempFolder folder;
  settings.push_back("run.dir=\"" + (folder / "run").string() + "\"");
  if (!ahead) settings.push_back("run.max_skipped_steps=1");
  std::vector<int32_t> tokens;
  for (int32_t i = 0, value = 1; i < 40000; ++i) tokens.push_back(value = (value * 37 + 11) % 251);
  train::RunOptions options;
  options.corpus = data::Corpus::from_documents("n", 256, {tokens});
  options.interrupted = std::move(interrupted);
  options.trace = trace;
  Outcome out;
  out.result =
      train::run([&] { return config::resolve(test::gpu_recipe("llama", "f32", settings)); }, options);
  std::istringstream lines(base::read_file(folder / "run/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    out.metrics.push_back(nlohmann::json::parse(line));
    out.metrics.back().erase("tokens_per_s");
  }
  return out;
}

TEST(Loop, StepsAheadChangeNoMetric) {
  const std::vector<std::string> settings = {"run.steps=11", "eval.every=4", "data.validation_fraction=0.1"};
  const Outcome apart = run_loop(false, settings), ahead = run_loop(true, settings),
                traced = run_loop(true, settings, {}, train::TraceRange{6, 7});
  ASSERT_EQ(apart.metrics.size(), 11u);
  EXPECT_EQ(ahead.metrics, apart.metrics);
  EXPECT_EQ(traced.metrics, apart.metrics);
  EXPECT_TRUE(apart.metrics[3].contains("eval_loss"));
  EXPECT_EQ(ahead.result.summary.steps, 11);
  EXPECT_EQ(ahead.result.summary.tokens, apart.result.summary.tokens);
}

// The step that is already on the device is finished and counted; the first question is before the first
// step. (Around step 5, which is traced for the report, no step is ahead.)
TEST(Loop, AnInterruptEndsTheRunAfterTheStepInProgress) {
  const auto at_call = [](int wanted) {
    return [calls = 0, wanted]() mutable { return ++calls == wanted ? SIGUSR1 : 0; };
  };
  const Outcome apart = run_loop(false, {"run.steps=20"}, at_call(9)),
                ahead = run_loop(true, {"run.steps=20"}, at_call(9));
  EXPECT_EQ(apart.result.summary.steps, 8);
  EXPECT_EQ(ahead.result.summary.steps, 9);
  for (const Outcome* o : {&apart, &ahead}) {
    EXPECT_EQ(o->result.summary.end, train::RunEnd::Interrupted);
    EXPECT_EQ(o->result.signal, SIGUSR1);
    EXPECT_EQ(o->metrics.size(), static_cast<size_t>(o->result.summary.steps));
  }
  // In the last but one step there is nothing left to stop.
  EXPECT_EQ(run_loop(true, {"run.steps=9"}, at_call(9)).result.summary.end, train::RunEnd::Finished);
}

}  // namespace
}  // namespace quintet
