#include "cli/support.h"
#include "program/text.h"

namespace quintet {
namespace {

using test::Outcome;
using test::quintet;
using test::quoted;
using test::SmallRun;

TEST(Tool, HelpAndVersion) {
  const Outcome help = quintet("--help");
  EXPECT_EQ(help.code, 0);
  for (const char* verb : {"train", "check", "verify", "program", "schedule", "generate"}) {
    EXPECT_CONTAINS(help.out, verb);
    const Outcome one = quintet(std::string(verb) + " --help");
    EXPECT_EQ(one.code, 0);
    EXPECT_CONTAINS(one.out, "--json") << verb;
  }
  EXPECT_EQ(quintet("--version").out.substr(0, 8), "quintet ");
}

TEST(Tool, UnknownVerbsAreNamed) {
  const Outcome o = quintet("trian recipe.toml");
  EXPECT_EQ(o.code, 2);
  EXPECT_CONTAINS(o.err, "unknown verb 'trian', did you mean 'train'?");
  for (const char* later : {"plan", "launch", "bench", "convert", "report"})
    EXPECT_EQ(quintet(later).code, 2);
  EXPECT_EQ(quintet("").code, 2);
}

TEST(Tool, AReaderThatGoesAwayIsNoCrash) {
  const SmallRun small;
  const Outcome o = test::shell(test::kTool + " program " + quoted(small.recipe_file().string()) +
                                " --expanded | head -n 1");
  EXPECT_EQ(o.code, 0);
  EXPECT_CONTAINS(o.out, "program rank=0");
}

// A closed reader of the result gives exit code 1 without a message; diagnostics without a reader are
// dropped.
TEST(Tool, AClosedPipeEndsItQuietly) {
  using test::into_closed_pipe;
  const SmallRun small;
  const std::string recipe = small.recipe_file().string();
  const Outcome out = into_closed_pipe({"program", recipe}, {1});
  EXPECT_EQ(out.code, 1);
  EXPECT_EQ(out.err, "");
  EXPECT_EQ(into_closed_pipe({"program", recipe}, {1, 2}).code, 1);
  // Invalid input is still reported by the exit code.
  EXPECT_EQ(into_closed_pipe({"program", "/no/such/recipe.toml"}, {2}).code, 2);
  EXPECT_EQ(into_closed_pipe({"trian"}, {1, 2}).code, 2);
  EXPECT_EQ(into_closed_pipe({"program", recipe, "--no-such-option"}, {1, 2}).code, 2);
  const Outcome doctor = into_closed_pipe({"doctor", recipe, "--steps", "1"}, {2});
  EXPECT_EQ(doctor.code, 0);
  EXPECT_CONTAINS(doctor.out, "small");
  // A training run continues to its end; streamed text stops where the reader left.
  EXPECT_EQ(into_closed_pipe({"train", recipe}, {1, 2}).code, 0);
  const Outcome generate = into_closed_pipe({"generate", small.run_dir().string(), "--tokens", "2"}, {1});
  EXPECT_EQ(generate.code, 1);
  EXPECT_EQ(generate.err, "");
}

// A full disk is reported.
TEST(Tool, OutputThatCannotBeWrittenIsAnError) {
  const SmallRun small;
  const Outcome o = quintet("program " + quoted(small.recipe_file().string()) + " >/dev/full");
  EXPECT_EQ(o.code, 1);
  EXPECT_CONTAINS(o.err, "cannot write to standard output");
}

TEST(Check, PrintsTheResolvedRecipe) {
  const SmallRun small;
  const std::string check = "check " + quoted(small.recipe_file().string());
  const Outcome o = quintet(check);
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(config::parse(o.out), small.recipe());
  EXPECT_CONTAINS(o.out, "# good: 4 ranks, ");
  const auto json = nlohmann::json::parse(quintet(check + " --json").out);
  EXPECT_EQ(json.at("good"), true);
  EXPECT_EQ(json.at("world"), 4);
  EXPECT_EQ(json.at("recipe").at("batch").at("accumulation"), 2);
  EXPECT_GT(json.at("planned_peak_bytes").get<int64_t>(), 0);
}

// --dtype sets all types, --set overrides one.
TEST(Check, WhatIsSetHoldsBesideAType) {
  const SmallRun small;
  const std::string check = "check " + quoted(small.recipe_file().string());
  for (const char* options : {" --dtype bf16 --set precision.master=split --set precision.gradients=bf16",
                              " --set precision.master=split --set precision.gradients=bf16 --dtype bf16"}) {
    const Outcome o = quintet(check + options);
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_CONTAINS(o.out,
                    "compute = \"bf16\"\nmaster = \"split\"\nmoments = \"f32\"\ngradients = \"bf16\"\n");
  }
}

TEST(Check, GivesEveryProblemAtOnce) {
  const SmallRun small;
  const std::string check =
      "check " + quoted(small.recipe_file().string()) + " --set parallel.tp=3 --set model.layers=0";
  const Outcome o = quintet(check);
  EXPECT_EQ(o.code, 2);
  EXPECT_CONTAINS(o.err, "parallel.tp");
  EXPECT_CONTAINS(o.err, "model.layers");
  const Outcome json = quintet(check + " --json");
  EXPECT_EQ(json.code, 2);
  const auto problems = nlohmann::json::parse(json.out).at("problems");
  std::set<std::string> keys;
  for (const auto& p : problems) keys.insert(p.at("key"));
  EXPECT_TRUE(keys.contains("parallel.tp"));
  EXPECT_TRUE(keys.contains("model.layers"));
}

TEST(Program, PrintsARank) {
  const SmallRun small;
  const std::string program = "program " + quoted(small.recipe_file().string());
  const Outcome o = quintet(program + " --rank 3");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_CONTAINS(o.out, "program rank=3 world=4");
  EXPECT_CONTAINS(o.out, "all_gather comm=dp_shard");
  EXPECT_CONTAINS(o.out, "repeat 2");
  const program::Program full = program::parse_text(quintet(program + " --rank 1 --full").out);
  EXPECT_EQ(full.rank.value, 1);
  EXPECT_EQ(full.world, 4);
  EXPECT_CONTAINS(quintet(program + " --set eval.every=2 --evaluate").out, "evaluate");
  const Outcome far = quintet(program + " --rank 4");
  EXPECT_EQ(far.code, 2);
  EXPECT_CONTAINS(far.err, "4 ranks; allowed: 0 to 3");
  const auto json = nlohmann::json::parse(quintet(program + " --rank 2 --json").out);
  EXPECT_EQ(json.at("rank"), 2);
  EXPECT_EQ(json.at("planned_peak_bytes"), full.arena_bytes);
  EXPECT_FALSE(json.at("collectives").empty());
}

TEST(Verify, BiasesOfRoutersAndPaddedExperts) {
  const SmallRun small;
  const std::string verify = "verify " + quoted(small.recipe_file().string()) +
                             " --dtype f64 --steps 2 --set model.moe.experts=4 --set model.moe.top_k=2 --set "
                             "model.moe.ffn=16 --set model.ffn=16 --set parallel.ep=2";
  for (const char* sets :
       {" --set model.moe.bias_rate=0.01 --set model.moe.score=sigmoid --set parallel.pp=2 --set "
        "batch.global=16",
        " --set model.moe.capacity_factor=0.5 --set model.moe.pad=true",
        " --set model.moe.capacity_factor=1 --set model.moe.pad=true --set model.moe.drop=position --set "
        "parallel.cp=2 --set parallel.sequence_parallel=false"}) {
    const Outcome o = quintet(verify + sets);
    EXPECT_EQ(o.code, 0) << sets << "\n" << o.out << o.err;
  }
}

TEST(Verify, ComparesTheLayoutWithOneRank) {
  const SmallRun small;
  const std::string verify = "verify " + quoted(small.recipe_file().string()) + " --dtype f64 --steps 2";
  const Outcome o = quintet(verify);
  EXPECT_EQ(o.code, 0) << o.out << o.err;
  EXPECT_CONTAINS(o.out, "PASS");
  EXPECT_TRUE(nlohmann::json::parse(quintet(verify + " --json").out).is_object());
  EXPECT_FALSE(base::directory_exists(small.run_dir())) << "verify writes no run folder";
}

}  // namespace
}  // namespace quintet
