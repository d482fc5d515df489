#include "layout/stages.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <map>
#include <numeric>

#include "graph/op.h"
#include "layout/groups.h"
#include "layout/support.h"

namespace quintet::layout {
namespace {

using namespace testing;

// Cost of each block label, computed independently from the graph.
std::vector<double> costs(const graph::Graph& g) {
  std::vector<double> cost(static_cast<size_t>(g.num_blocks), 0);
  for (const graph::Node& n : g.nodes())
    if (n.phase == graph::Phase::F && n.op->cost)
      cost[static_cast<size_t>(n.block)] +=
          n.op->cost(graph::input_types(g, n), graph::output_types(g, n), n.attrs).flops;
  return cost;
}

double most_expensive(const std::vector<double>& cost, const std::vector<int64_t>& sizes) {
  double most = 0;
  size_t label = 1;
  for (size_t s = 0; s < sizes.size(); ++s) {
    double here = s == 0 ? cost.front() : 0;
    if (s + 1 == sizes.size()) here += cost.back();
    for (int64_t i = 0; i < sizes[s]; ++i) here += cost[label++];
    most = std::max(most, here);
  }
  return most;
}

// Every way to split `layers` into `stages` parts of at least one.
void each_cut(int64_t layers, int stages, std::vector<int64_t>& so_far,
              const std::function<void(const std::vector<int64_t>&)>& fn) {
  if (stages == 1) {
    so_far.push_back(layers);
    fn(so_far);
    so_far.pop_back();
    return;
  }
  for (int64_t n = 1; n <= layers - stages + 1; ++n) {
    so_far.push_back(n);
    each_cut(layers - n, stages - 1, so_far, fn);
    so_far.pop_back();
  }
}

TEST(Stages, BalanceIsTheBestOfAllSplits) {
  for (const int64_t vocab : {37, 400, 4000})  // a head smaller than a block, about as large, larger
    for (const int stages : {1, 2, 3, 4}) {
      const graph::Graph g = small_llama({.blocks = 9, .vocab = vocab});
      const std::vector<double> cost = costs(g);
      const std::vector<int64_t> sizes = balance(g, stages);
      EXPECT_EQ(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}), 9);
      std::vector<int64_t> so_far;
      double best = std::numeric_limits<double>::infinity();
      each_cut(9, stages, so_far,
               [&](const std::vector<int64_t>& cut) { best = std::min(best, most_expensive(cost, cut)); });
      EXPECT_DOUBLE_EQ(most_expensive(cost, sizes), best) << vocab << " words, " << stages << " stages";
    }
}

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
