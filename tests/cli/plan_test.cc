// quintet plan, as a user runs it.
#include <gtest/gtest.h>

#include <tuple>

#include "cli/support.h"
#include "observe/trace.h"

namespace quintet::test {
namespace {

const std::string kRecipe = R"(
name = "planned"
[model]
preset = "llama-tiny"
[data]
seq_len = 64
[batch]
micro = 1
accumulation = 3
[parallel]
pp = 2
tp = 2
[optimizer]
lr = 1e-3
[run]
steps = 1
)";

TEST(PlanVerb, WithoutAFile) {
  const Outcome good = quintet("plan --model llama3-8b --cluster '1x8 h100'");
  EXPECT_EQ(good.code, 0) << good.err;
  EXPECT_NE(good.out.find("filled in parallel.dp_shard = 8"), std::string::npos) << good.out;
  const Outcome full = quintet("plan --model llama3-70b --cluster '1x8 h100'");
  EXPECT_EQ(full.code, 1) << full.err;
  EXPECT_NE(full.out.find("DOES NOT FIT"), std::string::npos) << full.out;
  for (const char* bad : {"plan", "plan --model llama3-8b", "plan --model llama3-8b --cluster '1x8 h1000'",
                          "plan --model llama3-8b --cluster '1x8 h100' --matmul fp7"})
    EXPECT_EQ(quintet(bad).code, 2) << bad;
}

// Simulator and executor run the same instructions in the same order on every stream of every stage.
TEST(PlanVerb, TraceHasTheOrderOfARealRun) {
  const TempFolder folder;
  const std::string recipe = (folder / "r.toml").string(), text = (folder / "text.txt").string(),
                    planned = (folder / "planned.json").string(), run = (folder / "run").string();
  base::write_file_atomically(recipe, kRecipe);
  std::string words;
  for (int i = 0; i < 2000; ++i) words += "hello world ";
  base::write_file_atomically(text, words);
  const Outcome plan = quintet("plan " + recipe + " --trace " + planned);
  ASSERT_EQ(plan.code, 0) << plan.err;
  const Outcome train = quintet("train " + recipe + " --trace steps=1-1 --run-dir " + run + " --set " +
                                quoted("data.path=[\"" + text + "\"]"));
  ASSERT_EQ(train.code, 0) << train.err;

  using Event = std::tuple<std::string, int64_t, int64_t, int64_t>;
  using Order = std::map<std::pair<int, std::string>, std::vector<Event>>;
  const auto order = [](const std::string& path) {
    Order out;
    for (const observe::TraceRecord& r : observe::read_trace(path))
      out[{r.rank, r.stream}].push_back(
          {r.name, r.args.at("block"), r.args.at("micro_batch"), r.args.at("bytes")});
    return out;
  };
  const Order simulated = order(planned), executed = order(run + "/trace.json");
  EXPECT_GT(simulated.size(), 6u);
  for (const auto& [stream, events] : simulated) {
    SCOPED_TRACE(stream.second);
    ASSERT_TRUE(executed.contains(stream));
    EXPECT_EQ(events, executed.at(stream));
  }
}

}  // namespace
}  // namespace quintet::test
