#include "kernels/attention_part.h"

#include <gtest/gtest.h>

namespace quintet::kernels {
namespace {

// The position of every row of a buffer in its sequence.
std::vector<int64_t> positions_of(const base::RowOrder& order) {
  std::vector<int64_t> at(static_cast<size_t>(order.rows()), -1);
  for (int64_t s = 0; s < order.sequences; ++s)
    for (int64_t r = 0; r < order.runs(); ++r) {
      const base::RowOrder::Run run = order.run(s, r);
      for (int64_t i = 0; i < run.length; ++i) at[static_cast<size_t>(run.row + i)] = run.position + i;
    }
  return at;
}

// Every pair of ring ranks, row by row.
TEST(AttentionPart, MatchesWhatQueriesSee) {
  for (const int64_t ranks : {1, 2, 3, 4})
    for (int64_t g = 0; g < ranks; ++g)
      for (int64_t j = 0; j < ranks; ++j) {
        SCOPED_TRACE(testing::Message() << "queries of " << g << ", keys of " << j << " of " << ranks);
        AttentionGeometry s;
        s.q_rows = {.seq_len = 6 * ranks, .sequences = 3, .ranks = ranks, .first = g, .count = 1};
        s.k_rows = s.q_rows;
        s.k_rows.first = j;
        const auto part = visible_part(s);
        ASSERT_TRUE(part.has_value());
        const std::vector<int64_t> query = positions_of(s.q_rows), key = positions_of(s.k_rows);
        for (int64_t b = 0; b < 3; ++b)
          for (int64_t i = 0; i < part->q.pitch; ++i)
            for (int64_t n = 0; n < part->k.pitch; ++n) {
              const int64_t at = i - part->q.first, of = n - part->k.first;
              const bool inside = at >= 0 && at < part->q.count && of >= 0 && of < part->k.count;
              EXPECT_EQ(inside && (!part->causal || of <= at),
                        key[static_cast<size_t>(b * part->k.pitch + n)] <=
                            query[static_cast<size_t>(b * part->q.pitch + i)])
                  << "sequence " << b << ", query " << i << ", key " << n;
            }
      }
}

// Neighbouring ranks in one buffer: the same rows, sequence by sequence.
TEST(AttentionPart, AscendingRowsAreTheSame) {
  for (const auto& [ranks, count] :
       {std::pair<int64_t, int64_t>{2, 2}, {4, 2}, {4, 4}, {6, 3}, {3, 1}, {1, 1}})
    for (int64_t first = 0; first < ranks; first += count) {
      SCOPED_TRACE(testing::Message() << "ranks from " << first << " on, " << count << " of " << ranks);
      const base::RowOrder order{
          .seq_len = 4 * ranks, .sequences = 3, .ranks = ranks, .first = first, .count = count};
      const base::RowOrder together = ascending(order);
      EXPECT_EQ(together.count, 1);
      ASSERT_EQ(together.rows(), order.rows());
      std::vector<int64_t> of_one;  // rows of the first sequence, from its runs
      for (int64_t r = 0; r < order.runs(); ++r)
        for (int64_t i = 0; i < order.run_length(); ++i) of_one.push_back(order.run(0, r).position + i);
      const std::vector<int64_t> found = positions_of(together);
      for (size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i], of_one[i % of_one.size()]) << i;
    }
  const base::RowOrder askew{.seq_len = 16, .sequences = 1, .ranks = 4, .first = 1, .count = 2};
  EXPECT_EQ(ascending(askew).count, 2);  // not a rank of a coarser split
}

TEST(AttentionPart, IsEmptyForOtherShapes) {
  AttentionGeometry s;
  s.q_rows = s.k_rows = {.seq_len = 16, .sequences = 1, .ranks = 2, .first = 0, .count = 1};
  s.window = 16;  // no limit
  EXPECT_TRUE(visible_part(s).has_value());
  s.window = 15;
  EXPECT_FALSE(visible_part(s).has_value());
  s.window = 0;
  s.k_rows.count = 2;  // whole keys
  EXPECT_FALSE(visible_part(s).has_value());
  s.q_rows.count = 2;
  EXPECT_FALSE(visible_part(s).has_value());
  s.q_rows = s.k_rows = {.seq_len = 16, .sequences = 1};
  s.window = 3;  // over a whole sequence
  EXPECT_TRUE(visible_part(s).has_value());
}

}  // namespace
}  // namespace quintet::kernels
