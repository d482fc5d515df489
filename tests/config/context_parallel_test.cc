// The choice of the context method, compared with traffic computed by hand.
#include "config/context_parallel.h"

#include <gtest/gtest.h>

#include "config/support.h"

namespace quintet::config {
namespace {

Model model(int64_t heads, int64_t kv_heads, int64_t head_dim = 8) {
  return {.layers = 1, .embed = 8, .ffn = 8, .heads = heads, .kv_heads = kv_heads, .head_dim = head_dim};
}

Parallel over(int64_t cp, int64_t tp = 1) { return {.tp = tp, .cp = cp}; }

constexpr int64_t kLong = 1 << 20;

ContextMethod choice(const Parallel& p, const Model& m, int64_t seq_len = kLong) {
  return choose_context_method(p, m, {.seq_len = seq_len});
}

TEST(Context, ElementsSent) {
  // 8 heads of width 8, 8 KV heads: q, k, v and o are 64 wide.
  EXPECT_DOUBLE_EQ(context_elements_sent(over(4), model(8, 8), 1), 128 * 3);
  EXPECT_DOUBLE_EQ(context_elements_sent(over(4), model(8, 8), 4), 4 * 64 * 0.75);
  EXPECT_DOUBLE_EQ(context_elements_sent(over(4), model(8, 8), 2), 128 * 0.5 + 128 * 3 / 2.0);
  // 2 KV heads: exchanged between two, gathered for the other two.
  EXPECT_DOUBLE_EQ(context_elements_sent(over(4), model(8, 2), 1), 32 * 3);
  EXPECT_DOUBLE_EQ(context_elements_sent(over(4), model(8, 2), 4), 128 * 0.75 + 32 * 3 / 2.0);
  // tp 4 over 2 KV heads: one per tensor rank.
  EXPECT_DOUBLE_EQ(context_elements_sent(over(2, 4), model(8, 2), 2), 2 * 16 * 0.5 + 16 * 1);
  // Latent attention: K is nope + rope wide, V is v_dim wide.
  Model latent = model(8, 8, 6);
  latent.mla = {.kv_rank = 4, .nope_dim = 4, .rope_dim = 2, .v_dim = 3};
  EXPECT_DOUBLE_EQ(context_elements_sent(over(2), latent, 1), 8 * (6 + 3));
  EXPECT_DOUBLE_EQ(context_elements_sent(over(2), latent, 2), 8 * 9 * 0.5 + 8 * 9 * 0.5);
}

TEST(Context, FewestBytesWin) {
  // Without grouped heads: 4 (cp - 1) / cp against 2 (cp - 1); equal at cp 2, where ring wins.
  EXPECT_EQ(choice(over(2), model(8, 8)), ContextMethod::Ring);
  EXPECT_EQ(choice(over(4), model(8, 8)), ContextMethod::Ulysses);
  EXPECT_EQ(choice(over(8), model(8, 8)), ContextMethod::Ulysses);
  // With few KV heads, K and V are cheap to exchange.
  EXPECT_EQ(choice(over(4), model(8, 1)), ContextMethod::Ring);
  EXPECT_EQ(choice(over(4), model(32, 8)), ContextMethod::Ring);     // 48 + 12 against 48, in heads
  EXPECT_EQ(choice(over(8), model(32, 8)), ContextMethod::Ulysses);  // 56 + 14 against 112
}

TEST(Context, UlyssesNeedsHeadsToExchange) {
  // 4 heads per tensor rank, 8 context ranks: Ulysses among 4, ring between the two groups.
  EXPECT_EQ(largest_ulysses(over(8, 2), model(8, 8)), 4);
  EXPECT_EQ(choice(over(8, 2), model(8, 8)), ContextMethod::UlyssesRing);
  EXPECT_EQ(largest_ulysses(over(8), model(9, 9)), 1);
  EXPECT_EQ(choice(over(8), model(9, 9)), ContextMethod::Ring);
  EXPECT_EQ(largest_ulysses(over(6), model(9, 9)), 3);
  // Query heads 3 to 5 of 6 would need one and a half of 3 KV heads.
  EXPECT_EQ(largest_ulysses(over(4), model(6, 3)), 1);
  EXPECT_EQ(largest_ulysses(over(6), model(6, 3)), 3);
  EXPECT_FALSE(heads_divide(over(4), model(12, 6), 4));
  EXPECT_TRUE(heads_divide(over(4), model(12, 6), 2));
  EXPECT_TRUE(heads_divide(over(6), model(12, 3), 6));
  EXPECT_TRUE(heads_divide(over(4, 4), model(16, 2), 4));
  // The exchange costs more than it saves.
  EXPECT_EQ(choice(over(4), model(6, 1)), ContextMethod::Ring);
}

TEST(Context, SmallChunksAreGathered) {
  EXPECT_EQ(choice(over(2), model(8, 8), 4 * 512), ContextMethod::Ring);
  EXPECT_EQ(choice(over(2), model(8, 8), 4 * 511), ContextMethod::Gather);
  EXPECT_EQ(choice(over(4), model(8, 8), 64), ContextMethod::Ulysses) << "bytes come first";
}

TEST(Context, ResolvedRecipesHaveAMethod) {
  const auto resolved = [](std::vector<std::string> o) { return parse(kGood, o).parallel; };
  EXPECT_EQ(resolved({}).cp_method, ContextMethod::Auto) << "nothing to choose";
  EXPECT_EQ(ulysses_ranks(resolved({})), 1);
  EXPECT_EQ(resolved({"parallel.cp=2"}).cp_method, ContextMethod::Gather);
  EXPECT_EQ(resolved({"parallel.cp=2", "parallel.cp_method=auto", "data.seq_len=2048"}).cp_method,
            ContextMethod::Ring);
  const Parallel u = resolved({"parallel.cp=2", "parallel.cp_method=ulysses"});
  EXPECT_EQ(u.cp_method, ContextMethod::Ulysses);
  EXPECT_EQ(u.ulysses, 0);
  EXPECT_EQ(ulysses_ranks(u), 2);
  const Parallel both = resolved({"parallel.cp=4", "parallel.cp_method=ulysses+ring"});
  EXPECT_EQ(both.ulysses, 2);
  EXPECT_EQ(ulysses_ranks(both), 2);
  EXPECT_EQ(both.world(), 32);
  EXPECT_EQ(both.dp(), 4) << "context ranks share sequences";
}

TEST(Context, TheReasonOfAChoiceHasItsNumbers) {
  const auto why = [](const Parallel& p, const Model& m, int64_t seq_len) {
    return why_context_method(p, m, {.seq_len = seq_len});
  };
  EXPECT_EQ(why(over(4), model(8, 8), kLong),
            "cp 4 divides 8 heads, and ulysses sends 192 elements per row and layer, gather and ring 384");
  EXPECT_EQ(why(over(8, 2), model(8, 8), kLong),
            "cp 8 does not divide 4 heads, 4 does and sends 160 elements per row and layer, gather and ring "
            "448");
  EXPECT_EQ(why(over(2), model(8, 8), kLong),
            "exchanging heads sends no less (128 elements per row and layer instead of 128), and chunks of "
            "262144 rows are large enough for a ring to hide its transfers");
  EXPECT_EQ(why(over(4), model(12, 6), kLong),
            "cp 4 does not divide 6 KV heads, 2 does and sends 240 elements per row and layer, gather and "
            "ring 288");
  EXPECT_EQ(why(over(4), model(6, 3), kLong),
            "no factor of cp 4 divides 6 heads and matches 3 KV heads, and chunks of 131072 rows are large "
            "enough for a ring to hide its transfers");
  EXPECT_EQ(why(over(8), model(9, 9), 1024),
            "no factor of cp 8 divides 9 heads, and chunks of 64 rows are too small for a ring to hide its "
            "transfers");
}

}  // namespace
}  // namespace quintet::config
