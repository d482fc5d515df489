#include "plan/memory_timeline.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "plan/small_models.h"
#include "plan/text.h"
#include "plan/timeline.h"
#include "program/allocate.h"

namespace quintet::plan {
namespace {

using nlohmann::json;
using testing::small_cluster;
using testing::small_llama;

// The timeline's fullest moment is the plan's peak, class by class; it begins with persistent memory, and
// time increases.
TEST(MemoryTimeline, FullestMomentIsThePeak) {
  for (const std::vector<std::string>& layout :
       {std::vector<std::string>{"parallel.dp_shard=8", "parallel.zero=3"},
        {"parallel.pp=4", "parallel.tp=2", "parallel.schedule=1f1b"},
        {"parallel.dp_replicate=8", "memory.recompute=full", "batch.micro=2"}}) {
    Assumptions a = small_cluster();
    a.timeline = true;
    const Report r = make_plan(small_llama(layout), a);
    const RankMemory& most = r.memory.ranks[r.memory.most_loaded];
    ASSERT_GT(r.memory.timeline.size(), 20u);
    EXPECT_LE(r.memory.timeline.size(), 240u);
    const MemoryPoint* fullest = &r.memory.timeline.front();
    double before = 0;
    for (const MemoryPoint& p : r.memory.timeline) {
      if (p.bytes() > fullest->bytes()) fullest = &p;
      EXPECT_GE(p.seconds, before);
      EXPECT_LE(p.seconds, r.time.step);
      EXPECT_EQ(p.by_class[static_cast<size_t>(program::MemoryClass::Optimizer)],
                most.by_class[static_cast<size_t>(program::MemoryClass::Optimizer)]);
      before = p.seconds;
    }
    EXPECT_EQ(fullest->by_class, most.by_class);
    EXPECT_LT(r.memory.timeline.front().bytes(), fullest->bytes());

    const program::Program& program = r.timeline->ranks.program[r.memory.most_loaded].program;
    const program::Peak peak = program::peak_of(program);
    EXPECT_EQ(most.peak_at, instruction_words(program, peak.body, peak.instr));
    const json j = json::parse(to_json(r));
    EXPECT_EQ(j["memory"]["timeline"]["points"].size(), r.memory.timeline.size());
    EXPECT_EQ(j["memory"]["timeline"]["columns"].size(), 1u + program::kNumMemoryClasses);
    EXPECT_EQ(j["memory"]["ranks"][0]["host_bytes"], 0);
  }
  EXPECT_TRUE(make_plan(small_llama({"parallel.dp_replicate=8"}), small_cluster()).memory.timeline.empty());
}

}  // namespace
}  // namespace quintet::plan
