#include "cli/support.h"
#include "schedule/generators.h"
#include "schedule/text.h"

namespace quintet {
namespace {

using test::Outcome;
using test::quintet;
using test::quoted;
using test::SmallRun;

const std::string kPipeline =
    " --set parallel.pp=2 --set parallel.dp_shard=1 --set parallel.zero=0 --set batch.accumulation=4";

TEST(ScheduleVerb, PrintsWhatAFileHolds) {
  for (const std::string& name : schedule::schedule_names()) {
    const Outcome o = quintet("schedule --name " + name + " --pp 4 --micro 8");
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(schedule::parse(o.out), schedule::make_schedule(name, 4, 0, 8));
  }
  EXPECT_EQ(quintet("schedule --name interleaved --pp 2 --micro 4 --chunks 3").out,
            schedule::print(schedule::interleaved(2, 3, 4)));
  const SmallRun small;
  const Outcome recipe = quintet("schedule " + quoted(small.recipe_file().string()) + kPipeline);
  EXPECT_EQ(recipe.code, 0) << recipe.err;
  EXPECT_EQ(recipe.out, schedule::print(schedule::one_f_one_b(2, 4)));
}

TEST(ScheduleVerb, DrawsAndCounts) {
  EXPECT_EQ(quintet("schedule --name 1f1b --pp 2 --micro 2 --gantt").out,
            "0 |F0-F1-......B0----...B1----|\n"
            "1 |...F0-B0----F1-B1----......|\n"
            "1f1b: 2 stages, 1 chunk, 2 micro-batches; bubble 33.33%, by rank 33.33%\n");
  const auto json = nlohmann::json::parse(quintet("schedule --name 1f1b --pp 4 --micro 8 --json").out);
  EXPECT_EQ(json.at("bubble"), 9.0) << "3 (p - 1)";
  EXPECT_EQ(json.at("makespan"), 33.0);
  for (int r = 0; r < 4; ++r) {
    const auto& rank = json.at("ranks").at(static_cast<size_t>(r));
    EXPECT_EQ(rank.at("in_flight"), 4 - r);
    EXPECT_EQ(rank.at("promised"), 4 - r);
    EXPECT_EQ(rank.at("actions").size(), 16u);
  }
  EXPECT_EQ(json.at("ranks")[1].at("actions")[0],
            (nlohmann::json{{"action", "0F0"}, {"start", 1.0}, {"end", 2.0}}));
  // Costs are per stage: a chunk costs half of one.
  const auto v =
      nlohmann::json::parse(quintet("schedule --name zb-v --pp 4 --micro 8 --json --costs 2,2,2").out);
  EXPECT_EQ(v.at("span_bubble"), 0.0);
  EXPECT_EQ(v.at("ranks")[0].at("busy"), 48.0);
  const auto slow =
      nlohmann::json::parse(quintet("schedule --name 1f1b --pp 4 --micro 8 --json --costs 1,1,1,0.5").out);
  EXPECT_GT(slow.at("bubble"), 9.0);
  EXPECT_EQ(slow.at("costs").at("comm"), 0.5);
}

TEST(ScheduleVerb, SynthesizesForCostsAndMemory) {
  const std::string asked = "schedule --synthesize --pp 4 --micro 12 --costs 1,1.1,0.6,0.1 --memory 3";
  const Outcome o = quintet(asked);
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("above the lower bound"), std::string::npos) << o.out;
  EXPECT_NE(o.out.find("# best named schedule: "), std::string::npos) << o.out;
  const schedule::Schedule made = schedule::parse(o.out);
  for (const int held : made.max_in_flight) EXPECT_LE(held, 3 * made.chunks);
  const SmallRun small;
  const std::string file = (small / "made.txt").string();
  base::write_file_atomically(file, o.out);
  EXPECT_EQ(quintet("schedule --check " + quoted(file)).code, 0);
  EXPECT_EQ(quintet("schedule --synthesize --pp 4").code, 2);
  EXPECT_EQ(quintet("schedule --name 1f1b --pp 4 --micro 8 --memory 3").code, 2);
  const Outcome little = quintet(asked + " --memory 0.1");
  EXPECT_EQ(little.code, 2);
}

TEST(ScheduleVerb, ChecksAndDrawsFiles) {
  const SmallRun small;
  const std::string file = (small / "own.txt").string(), chart = (small / "chart.svg").string();
  base::write_file_atomically(file, schedule::print(schedule::zb_h1(2, 4)));
  const Outcome good = quintet("schedule --check " + quoted(file));
  EXPECT_EQ(good.code, 0) << good.err;
  EXPECT_CONTAINS(good.out, "good: zb-h1: 2 stages x 1 chunk, 4 micro-batches; bubble 7.69 %");
  const Outcome drawn = quintet("schedule --check " + quoted(file) + " --svg " + quoted(chart));
  EXPECT_EQ(drawn.code, 0) << drawn.err;
  EXPECT_CONTAINS(drawn.out, "chart.svg");
  EXPECT_CONTAINS(base::read_file(chart), "<svg");

  const std::string head = "schedule mine\nstages 2\nchunks 1\nmicro_batches 4\nplacement looped\n";
  base::write_file_atomically(
      file, head + "0: 0F0 0F1 0BW0 0F2 0F3 0BW2 0BW3\n1: 0F0 0BW0 0F1 0BW1 0F2 0BW2 0F3 0BW3\n");
  const std::string sets = kPipeline + " --set parallel.schedule=" + quoted("file:" + file);
  for (const std::string& command :
       {"schedule --check " + quoted(file), "schedule " + quoted(small.recipe_file().string()) + sets,
        "check " + quoted(small.recipe_file().string()) + sets,
        "train " + quoted(small.recipe_file().string()) + sets}) {
    const Outcome bad = quintet(command);
    EXPECT_EQ(bad.code, 2) << command;
    EXPECT_CONTAINS(bad.err, "own.txt: schedule mine: rank 0: 0BW1 is missing") << command;
    EXPECT_EQ(bad.out, "");
  }
  EXPECT_FALSE(base::directory_exists(small.run_dir()));
}

TEST(ScheduleVerb, TrainsAndVerifiesWithAFile) {
  const SmallRun small;
  base::write_file_atomically(small / "own.txt", schedule::print(schedule::gpipe(2, 4)));
  const std::string recipe = quoted(small.recipe_file().string()) + kPipeline +
                             " --set parallel.schedule=" + quoted("file:" + (small / "own.txt").string()) +
                             " --steps 2";
  const Outcome verified = quintet("verify " + recipe + " --dtype f64");
  EXPECT_EQ(verified.code, 0) << verified.out << verified.err;
  const Outcome trained = quintet("train " + recipe + " -v");
  EXPECT_EQ(trained.code, 0) << trained.err;
  EXPECT_CONTAINS(trained.out, "gpipe: blocks 0 | 1, 4 micro-batches");
  base::remove_file(small / "own.txt");
  EXPECT_EQ(quintet("generate " + quoted(small.run_dir().string()) + " --tokens 1").code, 0)
      << "generating needs no schedule";
  EXPECT_CONTAINS(base::read_file(small.run_folder().schedule()), "schedule gpipe");
}

TEST(ScheduleVerb, RefusesWhatMakesNoSense) {
  const SmallRun small;
  const std::string recipe = quoted(small.recipe_file().string());
  for (const auto& [options, part] : std::vector<std::pair<std::string, std::string>>{
           {"", "takes exactly one of RECIPE, --name NAME, --synthesize and --check FILE; got 0"},
           {recipe + " --name 1f1b --pp 2 --micro 2", "got 2"},
           {recipe, "parallel.pp is 1"},
           {recipe + kPipeline + " --micro 2", "batch.accumulation"},
           {"--name 1f1b", "needs --pp (stages) and --micro"},
           {"--name zb-w --pp 2 --micro 2", "did you mean 'zb-v'?"},
           {"--name zb-v --pp 2 --micro 2 --chunks 3", "requires 2 chunks per stage; got 3"},
           {"--name interleaved --pp 4 --micro 8 --group 3", "use 4 or more"},
           {"--name 1f1b --pp 0 --micro 2", "--pp"},
           {"--name 1f1b --pp 2 --micro 2 --gantt --json", "--gantt"},
           {"--name 1f1b --pp 2 --micro 2 --gantt --costs 1,1", "2 numbers"},
           {"--name 1f1b --pp 2 --micro 2 --gantt --costs 1,1,x", "'x' is not a valid cost"},
           {"--name 1f1b --pp 2 --micro 2 --gantt --costs 1,1,-1", "'-1' is not a valid cost"},
           {"--name 1f1b --pp 2 --micro 2 --gantt --costs 0,0,0", "greater than 0"},
           {"--name 1f1b --pp 2 --micro 2 --svg /no/such/chart.svg", "/no/such/chart.svg"},
           {"--check /no/such/file", "/no/such/file"}}) {
    const Outcome o = quintet("schedule " + options);
    EXPECT_EQ(o.code, 2) << options << "\n" << o.out;
    EXPECT_CONTAINS(o.out + o.err, part);  // JSON goes to standard output
  }
}

}  // namespace
}  // namespace quintet
