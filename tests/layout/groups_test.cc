#include "layout/groups.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "layout/support.h"

namespace quintet::layout {
namespace {

using namespace testing;

struct Case {
  const char* name;
  config::Parallel parallel;
  ModelOptions model;
};

std::vector<Case> cases() {
  return {{"single", {}, {}},
          {"zero1", {.dp_shard = 3, .zero = 1}, {}},
          {"zero3", {.dp_shard = 4, .zero = 3}, {.tokens = 64}},
          {"tp", {.tp = 2}, {}},
          {"tp_sp", {.tp = 2, .sequence_parallel = true}, {}},
          {"gqa",
           {.dp_shard = 2, .zero = 3, .tp = 4, .sequence_parallel = true},
           {.heads = 8, .kv_heads = 2, .tokens = 64}},
          {"tied", {.dp_replicate = 2, .dp_shard = 2, .zero = 2, .tp = 2}, {.tied = true, .tokens = 64}}};
}

TEST(Groups, SegmentsCoverTheParametersWithoutOverlap) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const Local l = partitioned(c.parallel, c.model);
    const std::vector<Group> groups =
        make_groups(l.logical, l.local, l.layout, one_stage(l.logical.num_blocks), 0);
    std::set<std::string> seen;
    for (const Group& g : groups) {
      int64_t end = 0;
      for (const Segment& s : g.segments) {
        EXPECT_TRUE(seen.insert(s.name).second) << s.name;
        EXPECT_EQ(s.offset % kSegmentAlign, 0);
        EXPECT_GE(s.offset, end);
        EXPECT_LT(s.offset - end, kSegmentAlign);
        EXPECT_EQ(s.count, s.local.count());
        EXPECT_EQ(l.local.graph.value(s.param).name, s.name);
        EXPECT_EQ(l.local.graph.find_param(s.param)->block, g.block);
        end = s.offset + s.count;
      }
      EXPECT_EQ(g.used, end);
      const int shards = l.layout.mesh.size(l.layout.dense.shard);
      EXPECT_EQ(g.count % (kSegmentAlign * shards), 0);
      EXPECT_GE(g.count, g.used);
      EXPECT_LT(g.count - g.used, kSegmentAlign * shards);
      EXPECT_EQ(g.shard_count(shards) * shards, g.count);
    }
    EXPECT_EQ(seen.size(), l.logical.params().size());
  }
}

TEST(Groups, SegmentsWithTheSameOpenAtomsAreNeighbours) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const Local l = partitioned(c.parallel, c.model);
    for (const Group& g : make_groups(l.logical, l.local, l.layout, one_stage(l.logical.num_blocks), 0)) {
      std::set<AtomList> closed;
      for (size_t i = 1; i < g.segments.size(); ++i)
        if (g.segments[i].extra_partial != g.segments[i - 1].extra_partial) {
          EXPECT_TRUE(closed.insert(g.segments[i - 1].extra_partial).second);
          EXPECT_FALSE(closed.contains(g.segments[i].extra_partial)) << g.segments[i].name;
        }
    }
  }
}

// Over all ranks every element of a parameter is held equally often: once for each coordinate in the atoms
// that do not shard it. Elements outside are padding, past the end of a sharded dim.
TEST(Groups, GlobalIndexIsABijectionOverRanks) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const Local l = partitioned(c.parallel, c.model);
    const Mesh& mesh = l.layout.mesh;
    for (const Group& g : make_groups(l.logical, l.local, l.layout, one_stage(l.logical.num_blocks), 0))
      for (const Segment& s : g.segments) {
        SCOPED_TRACE(s.name);
        int parts = 1;
        for (const AtomList& atoms : s.placement.dims) parts *= mesh.size(atoms);
        std::vector<int> held(static_cast<size_t>(s.global.count()), 0);
        int64_t padding = 0;
        for (int r = 0; r < mesh.world(); ++r) {
          const GlobalIndex index(s, mesh, RankId(r));
          int64_t last = -1;
          for (int64_t i = 0; i < s.count; ++i) {
            const int64_t at = index(i);
            if (at < 0) {
              ++padding;
              continue;
            }
            ASSERT_LT(at, s.global.count());
            EXPECT_GT(at, last) << "local order is global order";
            last = at;
            ++held[static_cast<size_t>(at)];
          }
        }
        for (const int times : held) ASSERT_EQ(times, mesh.world() / parts);
        EXPECT_EQ(padding, mesh.world() * s.count - s.global.count() * (mesh.world() / parts));
      }
  }
}

// The grouping of blocks changes neither what is in a group's flat range nor which parameters there are.
TEST(Groups, EveryGroupingHoldsEveryParameterOnce) {
  using Kind = config::Grouping::Kind;
  for (const config::Grouping& grouping :
       {config::Grouping{Kind::Blocks, 1}, config::Grouping{Kind::Blocks, 2},
        config::Grouping{Kind::Blocks, 5}, config::Grouping{Kind::Bytes, 1},
        config::Grouping{Kind::Bytes, 3000}, config::Grouping{Kind::Bytes, 20000}}) {
    const Local l =
        partitioned({.dp_replicate = 2, .dp_shard = 2, .zero = 3, .zero_replicas = 1, .group = grouping},
                    {.blocks = 5, .tokens = 64});
    std::set<std::string> seen;
    for (const Group& g : make_groups(l.logical, l.local, l.layout, one_stage(l.logical.num_blocks), 0)) {
      SCOPED_TRACE(g.name);
      int64_t end = 0;
      for (const Segment& s : g.segments) {
        EXPECT_TRUE(seen.insert(s.name).second) << s.name;
        const int block = l.local.graph.find_param(s.param)->block;
        EXPECT_GE(block, g.block);
        EXPECT_LE(block, g.last_block);
        EXPECT_GE(s.offset, end);
        end = s.offset + s.count;
      }
      EXPECT_EQ(g.count % (kSegmentAlign * 4), 0) << "equal ranges over shards and replicas";
      if (grouping.kind == Kind::Blocks) {
        EXPECT_LT(g.last_block - g.block, grouping.size);
      } else {
        EXPECT_TRUE(g.segments.size() == 1 || g.parameter_bytes() <= grouping.size);
      }
      if (g.block == 0 || g.last_block + 1 == l.logical.num_blocks) {
        EXPECT_EQ(g.block, g.last_block);
      }
    }
    EXPECT_EQ(seen.size(), l.logical.params().size());
  }
}

// They are gathered like the others, but have neither gradients to reduce nor state to shard.
TEST(Groups, FrozenParametersAreApart) {
  const Local l =
      partitioned({.dp_shard = 2, .zero = 3}, {.groups = {{.match = "*.wq.weight", .update = false}}});
  std::set<std::string> frozen;
  for (const Group& g : make_groups(l.logical, l.local, l.layout, one_stage(l.logical.num_blocks), 0)) {
    EXPECT_EQ(g.trainable, !g.name.ends_with(".frozen")) << g.name;
    for (const Segment& s : g.segments) {
      EXPECT_EQ(l.local.graph.find_param(s.param)->trainable, g.trainable) << s.name;
      if (!g.trainable) frozen.insert(s.name);
    }
  }
  EXPECT_EQ(frozen, (std::set<std::string>{"blocks.0.wq.weight", "blocks.1.wq.weight"}));
}

TEST(Groups, ReplicatedAndOpenAtoms) {
  const Local l = partitioned({.dp_shard = 2, .zero = 3, .tp = 4, .sequence_parallel = true},
                              {.heads = 8, .kv_heads = 2, .tokens = 64});
  const AtomList tp = l.layout.mesh.axis(Axis::Tp);
  std::map<std::string, Segment> by_name;
  for (const Group& g : make_groups(l.logical, l.local, l.layout, one_stage(l.logical.num_blocks), 0))
    for (const Segment& s : g.segments) by_name[s.name] = s;
  EXPECT_EQ(by_name["blocks.0.wq.weight"].replicated, AtomList{});
  EXPECT_EQ(by_name["blocks.0.wq.weight"].extra_partial, AtomList{});
  EXPECT_EQ(by_name["blocks.0.wk.weight"].replicated, AtomList{tp[1]});
  EXPECT_EQ(by_name["blocks.0.wk.weight"].extra_partial, AtomList{});
  EXPECT_EQ(by_name["blocks.0.attn_norm.weight"].replicated, tp);
  EXPECT_EQ(by_name["blocks.0.attn_norm.weight"].extra_partial, tp);
  EXPECT_TRUE(by_name["blocks.0.wq.weight"].decay);
  EXPECT_FALSE(by_name["blocks.0.attn_norm.weight"].decay);
}

}  // namespace
}  // namespace quintet::layout
