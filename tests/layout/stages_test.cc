#include "layout/stages.h"

#include <gtest/gtest.h>

#include <map>

#include "layout/groups.h"
#include "layout/support.h"

namespace quintet::layout {
namespace {

using namespace testing;

TEST(Stages, BlocksFollowAnExplicitList) {
  EXPECT_EQ(stage_of_blocks({2, 1, 2}, 7), (std::vector<int>{0, 0, 0, 1, 2, 2, 2}));
  EXPECT_EQ(stage_of_blocks({0, 3}, 5), (std::vector<int>{0, 1, 1, 1, 1}));
  EXPECT_THROW(stage_of_blocks({2, 2}, 7), std::exception);
}

// A tied table is held by the first and the last pipeline rank, in a separate group; everything else once.
TEST(Stages, GroupsOfAllStagesHoldEveryParameter) {
  for (const bool tied : {false, true}) {
    const Local l = partitioned({.dp_shard = 2, .zero = 3, .pp = 3}, {.blocks = 5, .tied = tied});
    Stages stages{.of_block = stage_of_blocks({2, 1, 2}, l.logical.num_blocks),
                  .rank_of = {0, 1, 2},
                  .chunk_of = {0, 0, 0}};
    std::map<std::string, std::vector<int>> holders;
    for (int rank = 0; rank < 3; ++rank)
      for (const Group& g : make_groups(l.logical, l.local, l.layout, stages, rank))
        for (const Segment& s : g.segments) {
          holders[s.name].push_back(rank);
          EXPECT_EQ(g.shared_by.empty(), !tied || s.name != "embed.weight") << s.name;
          if (!g.shared_by.empty()) {
            EXPECT_EQ(g.shared_by, (std::vector<int>{0, 2}));
          }
        }
    EXPECT_EQ(holders.size(), l.logical.params().size());
    for (const auto& [name, ranks] : holders) {
      const bool twice = tied && name == "embed.weight";
      EXPECT_EQ(ranks.size(), twice ? 2u : 1u) << name;
    }
  }
}

}  // namespace
}  // namespace quintet::layout
