#include "base/row_order.h"

#include <gtest/gtest.h>

#include <vector>

namespace quintet::base {
namespace {

// Sequence and position of every row, directly from the contract: rank after rank, each with its chunks c and
// 2 * ranks - 1 - c of every sequence.
std::vector<std::pair<int64_t, int64_t>> described(const RowOrder& o) {
  std::vector<std::pair<int64_t, int64_t>> rows;
  if (o.ranks == 1) {
    for (int64_t s = 0; s < o.sequences; ++s)
      for (int64_t p = 0; p < o.seq_len; ++p) rows.push_back({s, p});
    return rows;
  }
  const int64_t chunk = o.seq_len / (2 * o.ranks);
  for (int64_t c = o.first; c < o.first + o.count; ++c)
    for (int64_t s = 0; s < o.sequences; ++s)
      for (const int64_t piece : {c, 2 * o.ranks - 1 - c})
        for (int64_t i = 0; i < chunk; ++i) rows.push_back({s, piece * chunk + i});
  return rows;
}

TEST(RowOrder, RunsHoldEveryRowOnceInAscendingOrder) {
  for (const int64_t ranks : {1, 2, 3, 4, 8})
    for (const int64_t chunk : {1, 3, 7})
      for (const int64_t sequences : {1, 2, 3})
        for (int64_t first = 0; first < ranks; ++first)
          for (int64_t count = 1; first + count <= ranks; ++count) {
            const RowOrder o{2 * ranks * chunk, sequences, ranks, first, count};
            SCOPED_TRACE(testing::Message() << ranks << " ranks, chunks of " << chunk << ", " << sequences
                                            << " sequences, ranks from " << first << ", " << count);
            const auto want = described(o);
            ASSERT_EQ(o.rows(), static_cast<int64_t>(want.size()));
            EXPECT_EQ(o.rows_per_sequence() * sequences, o.rows());
            std::vector<int> seen(want.size(), 0);
            for (int64_t s = 0; s < sequences; ++s) {
              int64_t next = 0;
              for (int64_t r = 0; r < o.runs(); ++r) {
                const RowOrder::Run run = o.run(s, r);
                EXPECT_EQ(run.length, o.run_length());
                EXPECT_GE(run.position, next);
                next = run.position + run.length;
                for (int64_t i = 0; i < run.length; ++i) {
                  EXPECT_EQ(want[static_cast<size_t>(run.row + i)], std::make_pair(s, run.position + i));
                  ++seen[static_cast<size_t>(run.row + i)];
                }
              }
            }
            for (const int n : seen) EXPECT_EQ(n, 1);
          }
}

TEST(RowOrder, PlacesInTheWhole) {
  for (const int64_t ranks : {1, 2, 3, 4}) {
    const RowOrder part{2 * ranks * 5, 3, ranks, ranks - 1, 1};
    const auto want = described(part.whole());
    for (int64_t s = 0; s < 3; ++s)
      for (int64_t p = 0; p < part.seq_len; ++p)
        EXPECT_EQ(want[static_cast<size_t>(part.row_in_whole(s, p))], std::make_pair(s, p));
  }
}

// Causal attention is balanced: the sum of positions is the same on every rank.
TEST(RowOrder, RanksHaveEqualWork) {
  for (int64_t rank = 0; rank < 4; ++rank) {
    const RowOrder o{24, 1, 4, rank, 1};
    int64_t sum = 0;
    for (int64_t r = 0; r < o.runs(); ++r)
      for (int64_t i = 0; i < o.run_length(); ++i) sum += o.run(0, r).position + i;
    EXPECT_EQ(sum, 24 * 23 / 2 / 4);
  }
}

}  // namespace
}  // namespace quintet::base
