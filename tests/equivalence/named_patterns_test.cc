// Keys that choose parameters or values by name, in f64 against one rank.
#include "base/error.h"
#include "compiler/compile.h"
#include "equivalence/checks.h"

namespace quintet::tests {
namespace {

using config::Recipe;

Recipe tensor_parallel(bool sequence_parallel) {
  Recipe r = small_recipe();
  r.parallel.tp = 2;
  r.parallel.sequence_parallel = sequence_parallel;
  return r;
}

TEST(NamedWeights, AreDividedByOutputsByInputsOrNotAtAll) {
  using List = std::vector<std::string> config::Parallel::*;
  const std::vector<std::pair<List, std::string>> cases = {
      {&config::Parallel::tp_column, "blocks.*.attn.wo.weight"},
      {&config::Parallel::tp_row, "blocks.*.attn.w?.weight"},
      {&config::Parallel::tp_row, "blocks.*.ffn.up.weight"},
      {&config::Parallel::tp_replicate, "blocks.0.*"},
      {&config::Parallel::tp_replicate, "*.ffn.down.weight"},
  };
  for (const bool sequence_parallel : {false, true})
    for (const auto& [list, pattern] : cases) {
      SCOPED_TRACE(pattern + (sequence_parallel ? " with sequence parallelism" : ""));
      Recipe r = tensor_parallel(sequence_parallel);
      r.parallel.*list = {pattern};
      expect_equal(resolved(r, 2, 2));
    }
}

TEST(NamedWeights, PatternsThatDivideNothingAreRefused) {
  const auto refusal = [](std::vector<std::string> config::Parallel::*list, const std::string& pattern) {
    Recipe r = tensor_parallel(false);
    r.parallel.*list = {pattern};
    try {
      compiler::compile(resolved(r, 2, 1), {});
    } catch (const base::UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(refusal(&config::Parallel::tp_row, "blocks.*.atn.*").find("matches no parameter"),
            std::string::npos);
  EXPECT_NE(refusal(&config::Parallel::tp_row, "*norm.weight").find("matches no weight of a linear layer"),
            std::string::npos);
  EXPECT_NE(refusal(&config::Parallel::tp_replicate, "head.weight").find("inside a block"),
            std::string::npos);
}

TEST(NamedGroups, DoNotChangeTheMathematics) {
  for (const int64_t pp : {1, 2}) {
    Recipe r = small_recipe();
    r.model.layers = 2;
    r.parallel.dp_shard = 2;
    r.parallel.zero = 3;
    r.parallel.pp = pp;
    if (pp > 1) r.parallel.schedule = "1f1b";
    r.parallel.group_match = {"*.attn.*"};
    r.parallel.persist_match = {"*norm*"};
    r.parallel.keep_match = {"blocks.0.*"};
    expect_equal(resolved(r, 1, 2));
  }
}

TEST(SplitSaved, DoesNotChangeTheMathematics) {
  for (const auto recompute : {config::RecomputeKind::None, config::RecomputeKind::Full})
    for (const char* const schedule : {"", "1f1b", "zb-h1"}) {
      SCOPED_TRACE(schedule);
      Recipe r = tensor_parallel(false);
      r.model.layers = 2;
      r.memory.recompute = recompute;
      r.memory.split_saved = true;
      if (*schedule != 0) {
        r.parallel.pp = 2;
        r.parallel.schedule = schedule;
      }
      expect_equal(resolved(r, 2, 2));
    }
}

}  // namespace
}  // namespace quintet::tests
