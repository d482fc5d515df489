#include <gtest/gtest.h>

#include "graph/support.h"

namespace quintet::graph {
namespace {

using testing::op_case;
using testing::OpCase;

Cost cost_of(const OpCase& c) { return c.op->cost(c.in, c.out(), c.attrs); }

TEST(Cost, Linear) {  // 8 rows, w [4, 6, 16]
  EXPECT_EQ(cost_of(op_case(kLinear)).flops, 2.0 * 8 * (4 * 6) * 16);
  EXPECT_EQ(cost_of(op_case(kLinearDx)).flops, 2.0 * 8 * (4 * 6) * 16);
  EXPECT_EQ(cost_of(op_case(kLinearDw)).flops, 2.0 * 8 * (4 * 6) * 16);
  EXPECT_EQ(cost_of(op_case(kLinear)).bytes, 4.0 * (8 * 16 + 4 * 6 * 16 + 8 * 4 * 6));
}

TEST(Cost, LinearBytesFollowTheDtype) {
  OpCase c = op_case(kLinear);
  for (Type& t : c.in) t.dtype = DType::BF16;
  EXPECT_EQ(cost_of(c).bytes, 2.0 * (8 * 16 + 4 * 6 * 16 + 8 * 4 * 6));
  EXPECT_EQ(cost_of(c).flops, 2.0 * 8 * (4 * 6) * 16);
}

// Visible pairs under a causal mask with a window, counted one by one.
double count_pairs(int64_t tokens, int64_t seq_len, int64_t window) {
  double pairs = 0;
  for (int64_t q = 0; q < tokens; ++q)
    for (int64_t k = 0; k < tokens; ++k)
      pairs += q / seq_len == k / seq_len && k <= q && (window == 0 || q - k < window);
  return pairs;
}

TEST(Cost, Attention) {
  for (const int64_t seq_len : {1, 2, 4, 8})
    for (const int64_t window : {0, 1, 2, 3, 4, 9}) {
      SCOPED_TRACE(::testing::Message() << "seq_len " << seq_len << ", window " << window);
      OpCase forward = op_case(kAttention), backward = op_case(kAttentionDx);
      for (OpCase* c : {&forward, &backward}) {
        c->attrs.set("seq_len", seq_len);
        c->attrs.set("window", window);
      }
      // Two matmuls forward (QK, PV), five backward (QK again, dV, dP, dQ, dK); 4 heads of width 6.
      const double matmul = 2.0 * 4 * 6 * count_pairs(8, seq_len, window);
      EXPECT_EQ(cost_of(forward).flops, 2 * matmul);
      EXPECT_EQ(cost_of(backward).flops, 5 * matmul);
    }
}

// Queries sharded over context ranks cost their share, and the hops of a ring together cost as much as one
// op.
TEST(Cost, AttentionOverContext) {
  OpCase whole = op_case(kAttention), part = whole, hop = op_case(kAttentionHop);
  for (OpCase* c : {&whole, &part, &hop}) {
    c->attrs.set("cp", int64_t{2});
    c->attrs.set("seq_len", int64_t{8});
  }
  for (const size_t i : {0, 3}) part.in[i].dims[0].size = 4;
  EXPECT_EQ(cost_of(part).flops * 2, cost_of(whole).flops);
  // The hop has as many query rows as the whole, of a batch twice as long: two hops see all keys.
  EXPECT_EQ(cost_of(hop).flops * 2, cost_of(whole).flops);
  OpCase backward = op_case(kAttentionDx), hop_backward = op_case(kAttentionHopDx);
  for (OpCase* c : {&backward, &hop_backward}) c->attrs.set("seq_len", int64_t{8});
  EXPECT_EQ(cost_of(hop_backward).flops * 2, cost_of(backward).flops);
}

TEST(Cost, AttentionBytesHaveNoScores) {
  EXPECT_EQ(cost_of(op_case(kAttention)).bytes,
            4.0 * (8 * 4 * 6 + 2 * 8 * 2 * 6 + 2 * 8 + 8 * 4 * 6 + 4 * 8));
}

TEST(Cost, EveryOpHasOne) {
  for (const OpCase& c : testing::op_cases()) {
    ASSERT_NE(c.op->cost, nullptr) << c.op->name;
    EXPECT_GT(cost_of(c).bytes, 0) << c.op->name;
    EXPECT_GE(cost_of(c).flops, 0) << c.op->name;
  }
  for (const OpDef* op : all_ops()) EXPECT_NE(op->cost, nullptr) << op->name;
}

}  // namespace
}  // namespace quintet::graph
