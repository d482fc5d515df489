// Compiled pipelines: stages of known models, and the micro-batches that a rank holds at the same time.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "compiler/compile.h"
#include "config/parse.h"
#include "config/validate.h"
#include "program/slots.h"
#include "schedule/generators.h"
#include "support/small_recipe.h"

namespace quintet::compiler {
namespace {

TEST(Pipeline, RecipesAndGeneratorsKnowTheSameSchedules) {
  std::vector<std::string> config, generators;
  for (const std::string_view name : config::pipeline_schedules()) config.emplace_back(name);
  for (const std::string& name : schedule::schedule_names()) generators.push_back(name);
  EXPECT_EQ(config, generators);
  for (const std::string& name : generators) {
    const schedule::Schedule s = schedule::make_schedule(name, 2, 0, 4);
    const config::ScheduleTraits traits = config::traits_of(name);
    EXPECT_EQ(s.chunks > 1, traits.two_chunks()) << name;
    EXPECT_EQ(s.placement == schedule::Placement::VShape, traits.v_shaped) << name;
    EXPECT_EQ(s.splits_backward, traits.splits_backward) << name;
  }
}

config::Recipe small(const std::vector<std::string>& overrides) {
  return test::small_recipe({"model.layers=8", "model.embed=8", "model.ffn=8", "model.heads=2",
                             "model.head_dim=4", "model.vocab=256", "data.seq_len=4"},
                            overrides);
}

// What a rank holds: a chunk's micro-batch is live from its first call to the end of its last.
struct Held {
  int most = 0;                             // over all chunks
  std::vector<int> most_of = {0, 0, 0, 0};  // by chunk
};

Held held(const program::Program& p) {
  std::map<std::pair<int, int>, size_t> last;
  const auto key = [&](size_t i) {
    return std::pair(p.bodies[static_cast<size_t>(p.calls[i].body)].chunk, p.calls[i].micro);
  };
  for (size_t i = 0; i < p.calls.size(); ++i)
    if (p.calls[i].micro >= 0) last[key(i)] = i;
  Held h;
  std::set<std::pair<int, int>> now;
  for (size_t i = 0; i < p.calls.size(); ++i) {
    if (p.calls[i].micro < 0) continue;
    now.insert(key(i));
    h.most = std::max(h.most, static_cast<int>(now.size()));
    int& of = h.most_of[static_cast<size_t>(key(i).first)];
    of = std::max(of, static_cast<int>(std::count_if(
                          now.begin(), now.end(), [&](const auto& k) { return k.first == key(i).first; })));
    if (last[key(i)] == i) now.erase(key(i));
  }
  return h;
}

// How many copies of one value are in use at once, at most. Fails where two micro-batches use a copy at the
// same time.
int most_copies(const program::Program& p) {
  struct Use {
    size_t first = 0, last = 0;
  };
  std::map<program::BufferId, std::map<int, Use>> uses;  // by micro-batch
  for (size_t i = 0; i < p.calls.size(); ++i) {
    const program::Body& body = p.bodies[static_cast<size_t>(p.calls[i].body)];
    for (const program::Instr& instr : body.instrs)
      for (const auto* list : {&instr.in, &instr.out})
        for (const program::Operand& o : *list)
          if (p.buffer(o.buffer).scope == program::Scope::Micro)
            uses[o.buffer].try_emplace(p.calls[i].micro, Use{i, i}).first->second.last = i;
  }
  std::map<std::string, std::map<size_t, int>> changes;  // by value: copies taken and given back, by call
  for (const auto& [id, by_micro] : uses) {
    std::vector<Use> in_order;
    for (const auto& [micro, use] : by_micro) in_order.push_back(use);
    std::sort(in_order.begin(), in_order.end(), [](const Use& a, const Use& b) { return a.first < b.first; });
    const std::string& name = p.buffer(id).name;
    for (size_t i = 0; i < in_order.size(); ++i) {
      if (i > 0) EXPECT_LT(in_order[i - 1].last, in_order[i].first) << name;
      if (p.input(id) != nullptr) continue;  // all chunks of a rank read it
      auto& of_value = changes[name.substr(0, name.rfind('@'))];
      ++of_value[in_order[i].first];
      --of_value[in_order[i].last + 1];
    }
  }
  int most = 0;
  for (const auto& [value, by_call] : changes) {
    int now = 0;
    for (const auto& [call, change] : by_call) most = std::max(most, now += change);
  }
  return most;
}

TEST(Pipeline, RanksHoldWhatTheScheduleSays) {
  for (const std::string& name : schedule::schedule_names())
    for (const int pp : {2, 3, 4})
      for (const int groups : {1, 2, 3}) {
        SCOPED_TRACE(fmt::format("{} pp {} x {}", name, pp, groups));
        const int m = pp * groups;
        const config::Recipe recipe = small({fmt::format("parallel.pp={}", pp), "parallel.schedule=" + name,
                                             fmt::format("batch.accumulation={}", m)});
        const schedule::Schedule s =
            schedule::make_schedule(name, pp, static_cast<int>(recipe.parallel.chunks), m);
        const std::vector<int> closed = schedule::in_flight(s).until_w;
        for (int r = 0; r < pp; ++r) {
          const Compiled c = compile(recipe, {.rank = base::RankId(r)});
          const Held h = held(c.program);
          EXPECT_EQ(h.most, closed[static_cast<size_t>(r)]) << "rank " << r;
          // These copies exist in memory, inside the arena.
          for (const program::Buffer& b : c.program.buffers)
            EXPECT_LE(b.offset + b.bytes, c.program.arena_bytes) << b.name;
          // A copy serves one micro-batch at a time, and some value needs a copy for each that is in flight.
          EXPECT_EQ(most_copies(c.program), *std::max_element(h.most_of.begin(), h.most_of.end()));
        }
      }
}

// Values that a weight gradient does not read are freed after B, so recomputing them saves memory even though
// W runs later.
TEST(Pipeline, RecomputeSavesMemoryWithASplitBackward) {
  for (const std::string name : {"1f1b", "zb-h1", "zb-v", "v-half", "dualpipev"}) {
    SCOPED_TRACE(name);
    // Stages by hand: balance counts what is recomputed.
    const char* const stages = config::traits_of(name).two_chunks() ? "[2, 2, 2, 2]" : "[4, 4]";
    const auto bytes = [&](const std::string& recompute) {
      return compile(small({"parallel.pp=2", "model.layers=8", "parallel.schedule=" + name,
                            fmt::format("parallel.stages={}", stages), "batch.accumulation=8",
                            "memory.recompute=" + recompute}),
                     {})
          .program.arena_bytes;
    };
    EXPECT_LT(bytes("full"), bytes("none"));
    EXPECT_LE(bytes("selective"), bytes("none"));
  }
}

TEST(Pipeline, AnExplicitListIsTaken) {
  const Compiled c = compile(small({"parallel.pp=3", "parallel.stages=[1, 5, 2]", "batch.accumulation=3"}),
                             {.rank = base::RankId(1)});
  EXPECT_EQ(c.pipeline.stages.of_block, (std::vector<int>{0, 0, 1, 1, 1, 1, 1, 2, 2, 2}));
  std::set<int> blocks;
  for (const layout::Group& g : c.groups) blocks.insert(g.block);
  EXPECT_EQ(blocks, (std::set<int>{2, 3, 4, 5, 6}));
}

}  // namespace
}  // namespace quintet::compiler
