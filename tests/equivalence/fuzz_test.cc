// The central invariant: the layout never changes the mathematics. Random layouts of tiny models in f64,
// every number of every step against one rank, and on every rank the planned peak against the measured one.
//
// QUINTET_FUZZ_LAYOUTS (0: without end) and QUINTET_FUZZ_SEED (make fuzz) give a longer or another run.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "config/validate.h"
#include "equivalence/random_layout.h"

namespace quintet::tests {
namespace {

constexpr int64_t kLayouts = 400, kSeed = 1;

int64_t setting(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? std::atoll(text) : otherwise;
}

// Case i is drawn from seed + i, so that one number brings any of them back.
Case case_of(int64_t seed) {
  std::mt19937_64 random(static_cast<uint64_t>(seed));
  return random_case(random);
}

TEST(Fuzz, RandomLayoutsComputeWhatOneRankComputes) {
  const int64_t layouts = setting("QUINTET_FUZZ_LAYOUTS", kLayouts),
                seed = setting("QUINTET_FUZZ_SEED", kSeed);
  const bool endless = layouts == 0, talk = endless || layouts > kLayouts;
  int64_t failures = 0;
  for (int64_t i = 0; (endless || i < layouts) && failures < 3; ++i) {
    if (talk && i % 100 == 0) {
      fmt::print("{} layouts, {} failures; now from seed {}\n", i, failures, seed + i);
      std::fflush(stdout);
    }
    const Case c = case_of(seed + i);
    if (setting("QUINTET_FUZZ_PRINT", 0)) fmt::print("{}", to_text(c)), std::fflush(stdout);
    const auto failure = failure_of(c);
    if (!failure) continue;
    ++failures;
    const Case small = shrink(c);
    const auto reason = failure_of(small);
    ADD_FAILURE() << "seed " << seed + i
                  << ": the layout departs from one rank (QUINTET_FUZZ_SEED=" << seed + i
                  << " QUINTET_FUZZ_LAYOUTS=1 brings it back). The smallest that does:\n\n"
                  << to_text(small) << "\n"
                  << reason.value_or(*failure);
  }
}

// The generator reaches what it is meant to reach; a feature that never comes up would pass every time.
TEST(Fuzz, GeneratorCoversTheAxes) {
  std::map<std::string, int> seen;
  for (int64_t i = 0; i < kLayouts; ++i) {
    const Case c = case_of(kSeed + i);
    const config::Parallel& p = c.recipe.parallel;
    const config::Model& m = c.recipe.model;
    seen["zero " + std::to_string(p.zero)] += p.dp_shard > 1;
    if (p.pp > 1) {
      ++seen["schedule " + p.schedule];
      ++seen["pp " + std::to_string(p.pp)];
      seen["pp with zero " + std::to_string(p.zero)] += p.dp_shard > 1;
    }
    seen["pp with tp"] += p.pp > 1 && p.tp > 1;
    seen["pp with sequence parallel"] += p.pp > 1 && p.sequence_parallel;
    seen["pp with tied weights"] += p.pp > 1 && m.tied;
    seen["pp with recompute"] += p.pp > 1 && c.recipe.memory.recompute != config::RecomputeKind::None;
    seen["pp with poison"] += p.pp > 1 && c.poison;
    seen["pp with dropout"] += p.pp > 1 && m.dropout > 0;
    seen["stages by hand"] += !p.stages.empty();
    seen["a stage without blocks"] += std::find(p.stages.begin(), p.stages.end(), 0) != p.stages.end();
    seen["fewer micro-batches than stages"] += c.recipe.batch.accumulation < p.pp;
    seen["three chunks"] += p.chunks > 2;
    seen["more than 16 ranks"] += p.world() > 16;
    seen["hsdp"] += p.dp_replicate > 1 && p.zero == 3;
    seen["reshard to ranks"] += p.reshard_after_forward.kind == config::ReshardAfterForward::Kind::ToRanks;
    seen["kept gathered"] += p.reshard_after_forward.kind == config::ReshardAfterForward::Kind::No;
    seen["sequence parallel"] += p.sequence_parallel;
    seen["fewer KV heads than tp"] += m.kv_heads < p.tp;
    seen["ragged vocabulary"] += m.vocab % p.tp != 0;
    seen["tied under tp"] += m.tied && p.tp > 1;
    seen["dropout under tp"] += m.dropout > 0 && p.tp > 1;
    seen["dropout under sequence parallel"] += m.dropout > 0 && p.sequence_parallel;
    seen["accumulation with zero 2"] += c.recipe.batch.accumulation > 1 && p.zero == 2;
    seen["accumulation with zero 3"] += c.recipe.batch.accumulation > 1 && p.zero == 3;
    seen["chunked loss under tp"] += c.recipe.loss.chunk > 0 && p.tp > 1;
    seen["frozen with zero 3"] += !c.recipe.optimizer.freeze.empty() && p.zero == 3;
    seen["recomputed"] += c.recipe.memory.recompute == config::RecomputeKind::Full;
    seen["recomputed in part with zero 3"] +=
        c.recipe.memory.recompute == config::RecomputeKind::Selective && p.zero == 3;
    seen["sgd"] += c.recipe.optimizer.kind == config::OptimizerKind::Sgd;
    seen["qk norm under tp"] += m.qk_norm && p.tp > 1;
    seen["qkv bias under tp"] += m.qkv_bias && p.tp > 1;
    seen["one token"] += c.mask == MaskKind::OneToken && p.dp() > 1;
    seen["16 ranks"] += p.world() == 16;
    seen["packed"] += c.recipe.data.pack;
    seen["poison"] += c.poison;
    seen["prefetch 0"] += p.prefetch == 0;
    seen["prefetch 2 or more"] += p.prefetch > 1;
    seen["odd sequence"] += c.recipe.data.seq_len % 2 != 0;
    seen["one head"] += m.heads == 1;
  }
  for (const std::string_view name : config::pipeline_schedules())
    EXPECT_GE(seen[fmt::format("schedule {}", name)], 2) << name;
  for (const auto& [feature, count] : seen) EXPECT_GE(count, 2) << feature;
}

}  // namespace
}  // namespace quintet::tests
