// Invalid recipes, each rejected for one reason, with a message that gives the key, the values and a
// suggestion. Every rule must be violated at least once.
#include "config/bad_recipes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <set>

#include "base/error_codes.h"
#include "base/file.h"
#include "config/codes.h"
#include "config/support.h"
#include "config/validate.h"
#include "support/folders.h"

namespace quintet::config {
namespace {

TEST(BadRecipes, TheGoodOneIsGood) { EXPECT_TRUE(problems_with({}).empty()); }

TEST(BadRecipes, EachIsRefusedForItsReason) {
  EXPECT_GE(bad_recipes().size(), 60u);
  for (const Bad& bad : bad_recipes()) {
    std::string trace = "--set";
    for (const std::string& o : bad.overrides) trace += " " + o;
    SCOPED_TRACE(trace);
    const std::vector<Problem> problems = problems_with(bad.overrides);
    std::string all;
    for (const Problem& p : problems) all += to_string(p) + "\n";
    // One mistake gives one problem, without follow-up errors.
    ASSERT_EQ(problems.size(), 1u) << all;
    const Problem& p = problems[0];
    EXPECT_EQ(p.name, bad.name) << all;
    EXPECT_EQ(p.key, bad.key) << all;
    for (const std::string& part : bad.parts)
      EXPECT_NE(p.rule.find(part), std::string::npos) << part << "\nin " << all;
    if (bad.nearest.empty())
      EXPECT_EQ(p.nearest, "") << all;
    else
      EXPECT_NE(p.nearest.find(bad.nearest), std::string::npos) << bad.nearest << "\nin " << all;
  }
}

TEST(BadRecipes, EveryRuleIsViolatedOnce) {
  std::set<std::string> met;
  for (const Bad& bad : bad_recipes()) met.insert(bad.name);
  // In a recipe file these are notes.
  Recipe alone = parse(kGood);
  alone.parallel.dp_shard = alone.parallel.tp = 1;
  alone.parallel.sequence_parallel = true;
  for (const Problem& p : problems_of(alone)) met.insert(p.name);
  for (const std::string& name : rule_names())
    EXPECT_TRUE(met.contains(name)) << "no invalid recipe violates: " << name;
}

// Every rule has one code, and every example of a code violates its rule and is repaired by its fix.
TEST(BadRecipes, EveryRuleHasACodeWithAnExample) {
  std::set<std::string_view> codes, rules;
  for (const ProblemCode& c : problem_codes()) {
    EXPECT_TRUE(codes.insert(c.code).second) << c.code << " is given twice";
    EXPECT_TRUE(rules.insert(c.rule).second) << c.rule << " has two codes";
    EXPECT_TRUE(c.code.size() == 5 && c.code[0] == 'Q') << c.code;
    EXPECT_EQ(find_code(c.code), &c);
  }
  std::set<std::string> names;
  for (const std::string& name : rule_names()) names.insert(name);
  for (const Bad& bad : bad_recipes()) names.insert(bad.name);
  for (const std::string& name : names)
    EXPECT_FALSE(code_of(name).empty()) << "add a row to src/config/codes_table.cc for the rule: " << name;

  const auto lines = [](std::string_view text) {
    std::vector<std::string> all;
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      all.emplace_back(text.substr(at, end - at));
      at = end + 1;
    }
    return all;
  };
  for (const ProblemCode& c : problem_codes()) {
    SCOPED_TRACE(c.code);
    EXPECT_NE(explain(c).find(c.cause.substr(0, 20)), std::string::npos);
    if (c.code >= "Q20") {
      EXPECT_FALSE(c.remedy.empty()) << "say what to do";
    }
    if (c.bad.empty()) continue;
    std::vector<std::string> overrides = lines(c.bad);
    const std::vector<Problem> problems = problems_with(overrides, std::string(example_recipe()));
    ASSERT_FALSE(problems.empty());
    for (const Problem& p : problems) EXPECT_EQ(p.name, c.rule) << to_string(p);
    EXPECT_NE(explain(c).find(problems[0].key), std::string::npos);
    if (c.fix.empty()) continue;
    for (const std::string& line : lines(c.fix)) overrides.push_back(line);
    for (const Problem& p : problems_with(overrides, std::string(example_recipe())))
      ADD_FAILURE() << "the fix is refused: " << to_string(p);
  }
  EXPECT_EQ(find_code("q1210"), find_code("Q1210"));
  EXPECT_EQ(find_code("Q9999"), nullptr);
}

// Errors without a code of their own get that of the source file that throws them.
TEST(ErrorCodes, EverySourceFileThatRefusesInputHasAnExplainedCode) {
  for (const base::ErrorOrigin& o : base::error_origins())
    EXPECT_NE(find_code(o.code), nullptr) << o.prefix << " has the code " << o.code << ", which has no row";
  const std::filesystem::path root = test::source_dir() + "/src";
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (!entry.is_regular_file()) continue;
    const std::string name = std::filesystem::relative(entry.path(), root).generic_string();
    if (!name.ends_with(".cc") && !name.ends_with(".h") && !name.ends_with(".cu")) continue;
    const std::string text = base::read_file(entry.path());
    if (text.find("fail_user(") == std::string::npos && text.find("UserError(") == std::string::npos)
      continue;
    ++files;
    EXPECT_FALSE(base::code_of_origin(name).empty())
        << name << " throws errors without a code: add a row to src/base/error_codes.cc";
  }
  EXPECT_GT(files, 100);
  // No row is shadowed by nothing: each prefix names a file or folder.
  for (const base::ErrorOrigin& o : base::error_origins()) {
    const std::filesystem::path path = root / o.prefix;
    bool found = std::filesystem::is_directory(path);
    if (!found)
      for (const auto& entry : std::filesystem::directory_iterator(path.parent_path()))
        found = found || entry.path().filename().string().starts_with(path.filename().string());
    EXPECT_TRUE(found) << "src/" << o.prefix << " does not exist";
  }
}

TEST(ErrorCodes, ComeFromTheSourceFileOrTheQuotedError) {
  const auto code_of_failure = [](auto action) {
    try {
      action();
    } catch (const base::UserError& e) {
      return fmt::format("{}: {}", e.code(), e.what());
    }
    return std::string("accepted");
  };
  const auto missing = [] { base::read_file("/no/such/file"); };
  EXPECT_TRUE(code_of_failure(missing).starts_with("Q2101: cannot ")) << code_of_failure(missing);
  EXPECT_TRUE(code_of_failure(missing).ends_with(" [Q2101]")) << code_of_failure(missing);
  // This file is none of Quintet's sources.
  EXPECT_EQ(code_of_failure([] { base::fail_user("{} is wrong", 3); }), ": 3 is wrong");
  EXPECT_EQ(code_of_failure([] { throw base::UserError("a", "Q2003"); }), "Q2003: a [Q2003]");
  EXPECT_EQ(code_of_failure([] { throw base::UserError("b: a [Q2003]; see there", "Q2101"); }),
            "Q2003: b: a [Q2003]; see there");
  EXPECT_EQ(base::code_in("a [Q12] b [Qabcd] c [Q1234"), "");
}

// A build may spell a path relative to any folder, and a compiler cache may bring along another clone's.
TEST(ErrorCodes, DoNotDependOnHowABuildSpellsPaths) {
  const std::string ours = "void quintet::config::{anonymous}::read(int)";
  for (const std::string folder :
       {"/home/me/quintet/src/", "../src/", "../../src/", "src/", "/src/src/", "C:/a/src/"})
    EXPECT_EQ(base::code_of_source(folder + "config/parse.cc", ours), "Q1001") << folder;
  EXPECT_EQ(
      base::code_of_source("../src/hardware/cluster.cc", "int quintet::hardware::parse(std::string_view)"),
      "Q2601");
  // Another project may have a folder src/config too, and tests are none of the sources.
  EXPECT_EQ(base::code_of_source("/home/me/mine/src/config/parse.cc", "void mine::read(int)"), "");
  EXPECT_EQ(base::code_of_source("/home/me/mine/src/parse.cc", "void mine::read(int)"), "");
  EXPECT_EQ(base::code_of_source("../tests/config/parse.cc", ours), "");
  EXPECT_EQ(base::code_of_source("../mysrc/config/parse.cc", ours), "");
  EXPECT_EQ(base::code_of_source("", ""), "");
}

TEST(BadRecipes, ProblemsPointAtTheirValue) {
  const auto at = [](const std::string& text) {
    try {
      parse(text);
    } catch (const RecipeError& error) {
      return excerpt(error.problems().front());
    } catch (const base::UserError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const std::string rest = "[data]\nseq_len = 64\n[optimizer]\nlr = 1e-3\n[run]\nsteps = 3\n[model]\n";
  EXPECT_EQ(at(rest + "preset = \"llama-tiny\"\n[parallel]\n  tp    = 3  # three\n"),
            "10 |   tp    = 3  # three\n   |           ^\n");
  // An unknown key is marked itself; characters count, not bytes.
  EXPECT_EQ(at(rest + "preset = \"llama-tiny\" # \xc3\xa4\nlayres = 3\n"), "9 | layres = 3\n  | ^^^^^^\n");
  EXPECT_EQ(at(rest + "preset = \"lama-tiny\"\n"), "8 | preset = \"lama-tiny\"\n  |          ^^^^^^^^^^^\n");
  // Long lines are cut around the value.
  const std::string cut = at(rest + "preset = \"llama-tiny\"\n[optimizer.schedule]\n" + "kind = \"cosinus" +
                             std::string(100, 'x') + "\"\n");
  EXPECT_LE(cut.find('\n'), 66u) << cut;
  // A list's entries are shown at the list.
  EXPECT_NE(at("[optimizer]\nlr = 1e-3\ngroups = [{ match = \"a\", rate = 1 }]\n" + rest.substr(0, 20) +
               "[run]\nsteps = 3\n[model]\npreset = \"llama-tiny\"\n")
                .find("3 | groups = [{"),
            std::string::npos);
  const std::string broken = at("[model\n");
  EXPECT_NE(broken.find("1 | [model\n"), std::string::npos) << broken;
  EXPECT_TRUE(broken.ends_with("[Q1001]")) << broken;
}

TEST(BadRecipes, RequiredKeysAreNamedWhenMissing) {
  std::set<std::string> keys;
  try {
    parse("");
    FAIL() << "an empty recipe was accepted";
  } catch (const RecipeError& error) {
    for (const Problem& p : error.problems()) {
      EXPECT_NE(p.rule.find("is required"), std::string::npos) << to_string(p);
      keys.insert(p.key);
    }
  }
  EXPECT_EQ(keys, (std::set<std::string>{"model.layers", "model.embed", "model.ffn", "model.heads",
                                         "data.seq_len", "optimizer.lr", "run.steps"}));
}

TEST(BadRecipes, AllProblemsComeAtOnceWithTheirLines) {
  const std::string text =
      "[model]\npreset = \"llama-tiny\"\nlayres = 3\n[data]\nseq_len = -5\n[parallel]\ntp = 3\nep = 2\n"
      "[optimizer]\nlr = \"high\"\n[run]\nsteps = 10\n";
  try {
    parse(text, {"parallel.dp_shard=2", "parallel.zero=7"}, "bad.toml");
    FAIL() << "accepted";
  } catch (const RecipeError& error) {
    const std::string message = error.what();
    EXPECT_TRUE(message.starts_with("bad.toml: 8 problems\n")) << message;
    for (const char* part : {"model.layres (line 3): ", "nearest: model.layers", "data.seq_len (line 5): ",
                             "parallel.tp (line 7): 3 does not divide model.heads 4; nearest: 2 or 4",
                             "parallel.tp (line 7): 3 must divide model.kv_heads 2",
                             "parallel.tp (line 7): 3 does not divide model.ffn 352; nearest: 2 or 4",
                             "parallel.ep (line 8): 2 has no effect",
                             "optimizer.lr (line 10): must be a number", "parallel.zero: must be"})
      EXPECT_NE(message.find(part), std::string::npos) << part << "\nin " << message;
  }
}

// What has no effect at this size is a note: the recipe runs with the neutral value.
TEST(BadRecipes, OptionsWithoutEffectAtThisSizeAreNotes) {
  const auto notes_of = [](const std::vector<std::string>& overrides, Recipe* recipe = nullptr) {
    std::vector<std::string> notes;
    const Recipe r = parse(kGood, overrides, "recipe", &notes);
    if (recipe != nullptr) *recipe = r;
    return notes;
  };
  Recipe r;
  EXPECT_EQ(notes_of({"parallel.dp_shard=1", "batch.global=4"}, &r),
            std::vector<std::string>{
                "parallel.zero = 3 has no effect with parallel.dp_shard = 1 and parallel.cp = 1"});
  EXPECT_EQ(r.parallel.zero, 0);
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"parallel.tp=1", "parallel.sequence_parallel=true"}, "parallel.sequence_parallel = true"},
      {{"parallel.dp_shard=1", "parallel.reshard_after_forward=2"}, "parallel.reshard_after_forward = 2"},
      {{"parallel.dp_shard=1", "parallel.prefetch=3"}, "parallel.prefetch = 3"},
      {{"parallel.cp_method='ring'"}, "parallel.cp_method = \"ring\""},
      {{"parallel.ulysses=2"}, "parallel.ulysses = 2"},
      {{"parallel.schedule='1f1b'"}, "parallel.schedule = \"1f1b\""},
      {{"parallel.chunks=2"}, "parallel.chunks = 2"},
      {{"parallel.stages=[4]"}, "parallel.stages = "},
      {{"parallel.tp=1", "parallel.dp_shard=1", "parallel.zero=0", "checkpoint.peer_every=5"},
       "checkpoint.peer_every = 5 has no effect with one rank"},
      {{"batch.global=8", "run.noise_scale_every=5"},
       "run.noise_scale_every = 5 has no effect with one micro"}};
  for (const auto& [overrides, part] : cases) {
    const auto notes = notes_of(overrides);
    ASSERT_FALSE(notes.empty()) << part;
    EXPECT_NE(notes.back().find(part), std::string::npos) << notes.back();
  }
  EXPECT_TRUE(notes_of({}).empty());
}

TEST(BadRecipes, OnlyFiftyProblemsAreListed) {
  std::string text = kGood + "[nonsense]\n";
  for (int i = 0; i < 20000; ++i) text += fmt::format("key_of_mine_{} = 1\n", i);
  try {
    parse(text);
    FAIL() << "accepted";
  } catch (const RecipeError& error) {
    EXPECT_EQ(error.problems().size(), 50u);
    EXPECT_EQ(error.left_out(), 19950u);
    EXPECT_NE(std::string(error.what()).find("20000 problems"), std::string::npos);
    EXPECT_TRUE(std::string(error.what()).ends_with("\n  and 19950 more"));
  }
}

// A suggestion that is followed must be accepted, whichever of the three sizes are given.
TEST(BadRecipes, SuggestedBatchSizesAreAccepted) {
  for (int64_t global = 1; global <= 40; ++global)
    for (int64_t micro = 0; micro <= 6; ++micro)
      for (int64_t accumulation = 0; accumulation <= 6; ++accumulation) {
        std::vector<std::string> sets = {fmt::format("batch.global={}", global), "parallel.dp_shard=2"};
        if (micro > 0) sets.push_back(fmt::format("batch.micro={}", micro));
        if (accumulation > 0) sets.push_back(fmt::format("batch.accumulation={}", accumulation));
        std::string text = kGood;
        text.replace(text.find("micro = 2\n"), 10, "");
        const auto problems = problems_with(sets, text);
        if (problems.empty()) continue;
        ASSERT_EQ(problems.size(), 1u);
        const std::string& near = problems[0].nearest;
        sets.push_back("batch.global=" + near.substr(0, near.find_first_not_of("0123456789")));
        EXPECT_TRUE(problems_with(sets, text).empty()) << to_string(problems[0]);
      }
}

TEST(BadRecipes, WordsOfOtherSystemsAreKnown) {
  const std::pair<const char*, const char*> words[] = {
      {"hidden_size", "model.embed"},
      {"model.hidden", "model.embed"},
      {"model.dim", "model.embed"},
      {"parallel.fsdp", "parallel.dp_shard"},
      {"optimizer.learning_rate", "optimizer.lr"},
      {"batch.micro_batch_size", "batch.micro"},
      {"train.Grad-Clip", "optimizer.clip_norm"},
      {"gradient_accumulation_steps", "batch.accumulation"},
      {"tensor_model_parallel_size", "parallel.tp"},
      {"training.compile", "leave it out: every recipe is compiled"},
      {"num_gpus", "parallel.dp_shard"},
      {"data.seqlen", "data.seq_len"},
      {"optimizer.lr_warmup", "optimizer.schedule.warmup"},
      {"use_distributed_optimizer", "parallel.zero"},
      {"num_nodes",
       "leave it out: mpirun or srun starts the ranks, as many as the axes of [parallel] multiply to"},
      {"deepspeed",
       "leave it out: parallel.zero and [precision] say what its file does; see docs/coming-from"},
      {"wandb.project", "leave it out: metrics.jsonl in the run folder has every step"},
      {"lora_r", "leave it out: adapters are not supported yet"}};
  for (const auto& [word, key] : words) {
    const auto problems = problems_with({std::string(word) + "=1"});
    ASSERT_EQ(problems.size(), 1u) << word;
    EXPECT_EQ(problems[0].nearest, key) << word;
  }
}

TEST(BadRecipes, TextThatIsNotTomlIsRefusedWithItsLine) {
  try {
    parse("[model\n", {}, "broken.toml");
    FAIL() << "accepted";
  } catch (const base::UserError& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("broken.toml:1:")) << error.what();
  }
}

TEST(BadRecipes, AMissingFileIsRefused) {
  EXPECT_THROW(load("no/such/recipe.toml"), base::UserError);
  EXPECT_THROW(load("/"), base::UserError);  // a directory
}

TEST(BadRecipes, OverridesMustBeKeyEqualsValue) {
  for (const char* text : {"", "parallel.tp", "=3", "parallel..tp=3", ".tp=3", "name.x=3"})
    EXPECT_THROW(parse(kGood, {text}), base::UserError) << text;
}

TEST(BadRecipes, RecipesBuiltInCodeAreCheckedToo) {
  Recipe r = parse(kGood);
  r.batch.micro = 3;
  EXPECT_THROW(resolve(r), RecipeError);
  r = parse(kGood);
  r.precision.compute = base::DType::I16;
  EXPECT_EQ(problems_of(r).size(), 1u);
  r = parse(kGood);
  r.parallel.dp_shard = std::numeric_limits<int64_t>::max();
  EXPECT_FALSE(problems_of(r).empty());
  EXPECT_FALSE(problems_of(Recipe{}).empty());
}

}  // namespace
}  // namespace quintet::config
