// parallel.schedule = "file:PATH": found, rejected with reasons, and compiled like the named schedule.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/temp_folder.h"
#include "compiler/compile.h"
#include "compiler/pipeline_schedule.h"
#include "config/parse.h"
#include "config/problem.h"
#include "program/text.h"
#include "schedule/generators.h"
#include "schedule/text.h"
#include "support/small_recipe.h"

namespace quintet::compiler {
namespace {

using test::TempFolder;

const std::vector<std::string> kOwn = {"model.layers=8", "batch.accumulation=4"};

class ScheduleFile : public ::testing::Test {
 protected:
  ScheduleFile() { base::write_file_atomically(folder_ / "recipe.toml", test::kSmallRecipe); }

  config::Recipe load(std::vector<std::string> sets) const {
    sets.insert(sets.begin(), kOwn.begin(), kOwn.end());
    return config::load((folder_ / "recipe.toml").string(), sets);
  }
  void write(const std::string& text) const { base::write_file_atomically(folder_ / "own.txt", text); }
  // The error for own.txt.
  std::string refusal(std::vector<std::string> sets = {}) const {
    sets.insert(sets.end(), {"parallel.pp=2", own()});
    return refused(load(sets));
  }
  static std::string refused(const config::Recipe& recipe) {
    try {
      pipeline_schedule(recipe);
    } catch (const base::UserError& e) {
      return e.what();
    }
    return "nothing";
  }
  std::string own() const { return "parallel.schedule=file:" + (folder_ / "own.txt").string(); }

  TempFolder folder_;
};

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST_F(ScheduleFile, CompilesToWhatTheNameCompilesTo) {
  for (const std::string& name : schedule::schedule_names()) {
    const config::Recipe named = load({"parallel.pp=2", "parallel.schedule=" + name});
    const auto s = schedule::make_schedule(name, 2, static_cast<int>(named.parallel.chunks), 4);
    write(schedule::print(s));
    const config::Recipe filed =
        load({"parallel.pp=2", own(), fmt::format("parallel.chunks={}", named.parallel.chunks)});
    EXPECT_EQ(pipeline_schedule(filed), s) << name;
    for (int r = 0; r < 2; ++r) {
      const CompileOptions options{.rank = base::RankId(r)};
      const Compiled a = compile(named, options), b = compile(filed, options);
      const program::TextOptions full{.full = true};
      EXPECT_EQ(program::to_text(a.program, a.step, full), program::to_text(b.program, b.step, full)) << name;
    }
  }
}

// Relative to the recipe in its file, to the working directory in an override, and nowhere else.
TEST_F(ScheduleFile, IsFoundAsEveryPathIs) {
  write(schedule::print(schedule::one_f_one_b(2, 4)));
  const std::string file = "file:" + (folder_ / "own.txt").string();
  const config::Recipe placed = load({"parallel.pp=2", own()});
  EXPECT_EQ(placed.parallel.schedule, file);
  // A resolved recipe reads back unchanged, from any folder.
  EXPECT_EQ(test::small_recipe(kOwn, {"parallel.pp=2", "parallel.schedule=" + file}), placed);
  EXPECT_EQ(test::small_recipe(kOwn, {"parallel.pp=2", "parallel.schedule=file:own.txt"}).parallel.schedule,
            "file:own.txt")
      << "text has no folder";

  const auto override = load({"parallel.pp=2", "parallel.schedule=file:own.txt"});
  EXPECT_EQ(override.parallel.schedule, "file:" + (std::filesystem::current_path() / "own.txt").string());
  EXPECT_SAYS(refused(override), "own.txt' does not exist");

  base::write_file_atomically(
      folder_ / "recipe.toml",
      std::string(test::kSmallRecipe) + "[parallel]\npp = 2\nschedule = \"file:own.txt\"\n");
  EXPECT_EQ(load({}).parallel.schedule, file);
  base::remove_file(folder_ / "own.txt");
  EXPECT_EQ(load({}).parallel.schedule, file);
  EXPECT_SAYS(refused(load({})), "own.txt' does not exist");
}

TEST_F(ScheduleFile, WithOtherNumbersNamesEachKey) {
  write(schedule::print(schedule::zb_v(4, 8)));
  try {
    pipeline_schedule(load({"parallel.pp=2", own()}));
    FAIL() << "accepted";
  } catch (const config::RecipeError& e) {
    ASSERT_EQ(e.problems().size(), 3u) << e.what();
    EXPECT_EQ(e.problems()[0].key, "parallel.pp");
    EXPECT_EQ(e.problems()[0].nearest, "4");
    EXPECT_SAYS(e.problems()[0].rule, "own.txt' is for 4 stages");
    EXPECT_EQ(e.problems()[1].key, "parallel.chunks");
    EXPECT_EQ(e.problems()[1].nearest, "2");
    EXPECT_EQ(e.problems()[2].key, "batch.accumulation");
    EXPECT_EQ(e.problems()[2].nearest, "8");
    EXPECT_SAYS(e.problems()[2].rule, "4, but");
  }
}

TEST_F(ScheduleFile, ThatCannotRunNamesTheAction) {
  const std::string head = "schedule mine\nstages 2\nchunks 1\nmicro_batches 4\nplacement looped\n";
  const std::string last = "1: 0F0 0BW0 0F1 0BW1 0F2 0BW2 0F3 0BW3\n";
  const auto said = [&](const std::string& text) {
    write(text);
    return refusal();
  };
  EXPECT_EQ(said(head + "0: 0F0 0F1 0BW0 0F2 0BW1 0F3 0BW2 0BW3\n" + last), "nothing");
  EXPECT_SAYS(said(head + "0: 0F0 0F1 0BW0 0F2 0BW1 0F3 0BW2\n" + last),
              "own.txt: schedule mine: rank 0: 0BW3 is missing");
  EXPECT_SAYS(said(head + "0: 0BW0 0F0 0F1 0F2 0BW1 0F3 0BW2 0BW3\n" + last),
              "rank 0: 0BW0 comes before 0F0");
  EXPECT_SAYS(said(head + "0: 0F0 0F1 0BW1 0BW0 0F2 0F3 0BW2 0BW3\n" + last), "rank 0");
  EXPECT_SAYS(said(head + "max_in_flight 1 1\n0: 0F0 0F1 0BW0 0F2 0BW1 0F3 0BW2 0BW3\n" + last),
              "rank 0: at 0F1 it holds 2 activations, but promises at most 1");
  EXPECT_SAYS(said(head + "0: 0F0 0X1\n" + last), "own.txt:6:8: expected an action");
  EXPECT_SAYS(said(""), "own.txt: missing line 'schedule ...'");
}

// Loads accumulate in the order of forwards, so gradients of other orders would not be those of one rank.
TEST_F(ScheduleFile, ForwardsAreAscendingWhereLoadsAccumulate) {
  const std::string head = "schedule mine\nstages 2\nchunks 1\nmicro_batches 4\nplacement looped\n";
  const auto ranks = [](const std::string& order) { return "0: " + order + "\n1: " + order + "\n"; };
  const std::vector<std::string> global = {
      "model.moe.experts=4", "model.moe.top_k=2",           "model.moe.ffn=64",
      "model.ffn=64",        "model.moe.balance_loss=0.01", "model.moe.balance_scope=global"};
  write(head + ranks("0F1 0F0 0F2 0F3 0BW0 0BW1 0BW2 0BW3"));
  EXPECT_EQ(refusal(), "nothing");
  const std::string text = refusal(global);
  EXPECT_SAYS(text, "runs the forward of micro-batch 0 after that of micro-batch 1 (stage 0)");
  EXPECT_SAYS(text, "balance_scope = \"global\"");
  std::vector<std::string> local = global;
  local.back() = "model.moe.balance_scope=micro_batch";
  EXPECT_EQ(refusal(local), "nothing");
  local.push_back("model.moe.balance.global=0.02");
  EXPECT_SAYS(refusal(local), "but with model.moe.balance.global loads accumulate");
  write(head + ranks("0F0 0F1 0F2 0F3 0BW1 0BW0 0BW2 0BW3"));
  EXPECT_EQ(refusal(global), "nothing");
}

TEST_F(ScheduleFile, NeedsAPipelineAndAPath) {
  EXPECT_EQ(load({own()}).parallel.schedule, "") << "no effect with pp = 1";
  EXPECT_THROW(load({"parallel.pp=2", "parallel.schedule=file:"}), config::RecipeError);
}

}  // namespace
}  // namespace quintet::compiler
