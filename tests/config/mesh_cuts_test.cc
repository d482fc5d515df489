// Mesh cuts, compared with lists written by hand.
#include "config/mesh_cuts.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "config/demands.h"
#include "config/support.h"

namespace quintet::config {
namespace {

Model model(int64_t heads, int64_t kv_heads) { return {.heads = heads, .kv_heads = kv_heads}; }

std::vector<int64_t> sizes(const Parallel& p, const Model& m) {
  std::vector<int64_t> found;
  for (const Cut& cut : mesh_cuts(p, demands(m))) {
    EXPECT_FALSE(cut.why.empty());
    EXPECT_TRUE(cut.key.starts_with("parallel.")) << cut.key;
    found.push_back(cut.size);
  }
  return found;
}

using Sizes = std::vector<int64_t>;

TEST(MeshCuts, OfOneRankAreNone) { EXPECT_EQ(sizes({}, model(4, 2)), Sizes{}); }

TEST(MeshCuts, OfThePlainAxes) {
  EXPECT_EQ(sizes({.dp_replicate = 5, .dp_shard = 3, .tp = 2, .pp = 7}, model(4, 2)), (Sizes{2, 6, 30}));
  EXPECT_EQ(sizes({.dp_shard = 3, .tp = 2, .cp = 2}, model(4, 2)), (Sizes{2, 4, 12}));
}

TEST(MeshCuts, FollowTheOrderOfTheAxes) {
  using enum MeshAxis;
  Parallel p{.dp_replicate = 5, .dp_shard = 3, .tp = 8, .pp = 7, .order = {DpShard, Pp, Tp, Cp, DpReplicate}};
  EXPECT_EQ(sizes(p, model(8, 2)), (Sizes{3, 12, 24, 120}));  // a stage's ranks; 4 share a KV head
  p.ep = 2;  // copies of experts come first, as dp_shard does
  EXPECT_EQ(sizes(p, model(8, 8)), (Sizes{3, 24, 60, 120}));
}

TEST(MeshCuts, OfSharedKvHeads) {
  EXPECT_EQ(sizes({.tp = 8}, model(8, 2)), (Sizes{4, 8}));  // four tensor ranks hold the same KV head
  Model latent = model(8, 2);
  latent.mla.kv_rank = 4;  // every head has its own K and V
  EXPECT_EQ(sizes({.tp = 8}, latent), Sizes{8});
}

TEST(MeshCuts, OfUlysses) {
  const auto with = [](ContextMethod method, int64_t ulysses = 0) {
    return Parallel{.tp = 2, .cp = 8, .cp_method = method, .ulysses = ulysses};
  };
  EXPECT_EQ(sizes(with(ContextMethod::Ring), model(16, 16)), (Sizes{2, 16}));
  EXPECT_EQ(sizes(with(ContextMethod::Ulysses), model(16, 16)), (Sizes{2, 16}));
  EXPECT_EQ(sizes(with(ContextMethod::Ulysses), model(16, 4)), (Sizes{2, 8, 16}));  // 2 KV heads over 8 ranks
  EXPECT_EQ(sizes(with(ContextMethod::UlyssesRing, 4), model(16, 16)), (Sizes{2, 8, 16}));
  EXPECT_EQ(sizes(with(ContextMethod::UlyssesRing, 4), model(16, 4)), (Sizes{2, 4, 8, 16}));
  // tp 2 over one KV head: one per rank, gathered entirely.
  EXPECT_EQ(sizes(with(ContextMethod::UlyssesRing, 4), model(16, 1)), (Sizes{2, 8, 16}));
}

TEST(MeshCuts, OfReshardAndExperts) {
  Parallel p{.dp_shard = 4, .tp = 2, .cp = 2};
  p.reshard_after_forward = {ReshardAfterForward::Kind::ToRanks, 4};
  EXPECT_EQ(sizes(p, model(4, 2)), (Sizes{2, 4, 8, 16}));
  EXPECT_EQ(sizes({.dp_shard = 8, .tp = 4, .ep = 4, .etp = 2}, model(4, 4)), (Sizes{2, 4, 8, 32}));
}

TEST(MeshCuts, LegalWhenEachDividesTheNext) {
  const auto legal = [](const Parallel& p) {
    const std::vector<Cut> cuts = mesh_cuts(p, demands(model(12, 12)));
    return first_bad_cut(cuts) == cuts.size();
  };
  EXPECT_TRUE(legal({.dp_shard = 6, .tp = 2, .ep = 6}));
  EXPECT_FALSE(legal({.dp_shard = 6, .tp = 2, .ep = 3}));
  EXPECT_FALSE(legal({.dp_shard = 2, .tp = 4, .cp = 3, .cp_method = ContextMethod::Ring, .ep = 6}));
  EXPECT_EQ(first_bad_cut(mesh_cuts({.dp_shard = 6, .tp = 2, .ep = 3}, demands(model(4, 4)))), 0u);
}

// The rules accept a layout exactly when its groups have a common refinement, determined by brute force: any
// two blocks of two partitions are disjoint or nested.
TEST(MeshCuts, TheRuleAgreesWithBruteForce) {
  int accepted = 0, refused = 0;
  for (const int64_t tp : {1, 2, 4})
    for (const int64_t cp : {1, 2, 3})
      for (const int64_t dp : {1, 2, 3, 4, 6})
        for (const int64_t ep : {1, 2, 3, 4, 6, 12})
          for (const int64_t etp : {1, 2, 3}) {
            const int64_t world = tp * cp * dp;
            if (world % (ep * etp) != 0) continue;
            const Parallel p{
                .dp_shard = dp, .tp = tp, .cp = cp, .cp_method = ContextMethod::Gather, .ep = ep, .etp = etp};
            const std::vector<int64_t> blocks = {tp, tp * cp, world, etp, etp * ep};
            bool nested = true;  // any two blocks are disjoint or nested
            for (const int64_t a : blocks)
              for (const int64_t b : blocks)
                for (int64_t rank = 0; rank < world; ++rank) {
                  const int64_t a0 = rank / a * a, b0 = rank / b * b;
                  const bool inside = (a0 <= b0 && b0 + b <= a0 + a) || (b0 <= a0 && a0 + a <= b0 + b);
                  nested &= inside;
                }
            const std::vector<Cut> cuts = mesh_cuts(p, demands(model(4, 4)));
            EXPECT_EQ(first_bad_cut(cuts) == cuts.size(), nested)
                << "tp " << tp << " cp " << cp << " dp " << dp << " ep " << ep << " etp " << etp;
            ++(nested ? accepted : refused);
          }
  EXPECT_GT(accepted, 50);
  EXPECT_GT(refused, 20);
}

}  // namespace
}  // namespace quintet::config
