// A table of merges gives the rank of its pairs and of no others, also of those whose tags are equal.
#include "tokenizer/merge_table.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace quintet::tokenizer {
namespace {

using Pairs = std::map<std::pair<int32_t, int32_t>, uint32_t>;

// `ids` above 2^16 make keys of more bits than a tag has.
void expect_equal_to_map(int32_t ids, uint32_t count) {
  std::mt19937 random(ids);
  std::uniform_int_distribution<int32_t> id(0, ids - 1);
  std::vector<MergeTable::Merge> merges = {{0, 0, 0, 7}};
  Pairs expected = {{{0, 0}, 0}};
  for (uint32_t rank = 1; rank < count; ++rank) {
    merges.push_back({id(random), id(random), rank, static_cast<int32_t>(rank) * 3});
    expected[{merges.back().left, merges.back().right}] = rank;
  }
  const MergeTable table(merges, ids);
  const auto expect_rank = [&](int32_t left, int32_t right) {
    const auto found = expected.find({left, right});
    const uint32_t rank = found == expected.end() ? MergeTable::kNoRank : found->second;
    ASSERT_EQ(table.rank(left, right), rank) << left << " " << right;
    if (rank != MergeTable::kNoRank && rank > 0)
      ASSERT_EQ(table.joined(rank), static_cast<int32_t>(rank) * 3);
  };
  for (const auto& [pair, rank] : expected) {
    const auto [left, right] = pair;
    expect_rank(left, right);
    for (int bit = 0; bit < 25; ++bit) {  // pairs of large ids that differ in high bits have equal tags
      if (const int32_t other = left ^ (1 << bit); other < ids) expect_rank(other, right);
      if (const int32_t other = right ^ (1 << bit); other < ids) expect_rank(left, other);
    }
    for (int i = 0; i < 64; ++i)  // as these do
      if (const int32_t other = left ^ (id(random) >> 7 << 7); other < ids) expect_rank(other, right);
    const int32_t middle = id(random);
    const auto [first, second] = table.ranks(left, right, middle);
    ASSERT_EQ(first, rank);
    ASSERT_EQ(second, table.rank(right, middle));
  }
}

TEST(MergeTable, HasThePairsOfAMapAndNoOthers) {
  for (const int32_t ids : {1, 2, 256, 1000, 50'000}) expect_equal_to_map(ids, 2'000);
  expect_equal_to_map(128'256, 100'000);
}

TEST(MergeTable, DistinguishesPairsOfTheLargestIds) {
  expect_equal_to_map((1 << 24) + 1, 40);
  expect_equal_to_map((1 << 24) + 1, 50'000);
}

// Most tokens of a vocabulary can be looked up, and those that were learnt last are in no merge.
TEST(MergeTable, FindsNothingForIdsThatNoMergeHas) {
  const MergeTable table({{10, 10, 0, 256}}, 257);
  for (int32_t left = 0; left < 257; ++left)
    for (int32_t right = 0; right < 257; ++right)
      ASSERT_EQ(table.rank(left, right), left == 10 && right == 10 ? 0 : MergeTable::kNoRank)
          << left << " " << right;
}

TEST(MergeTable, WithoutMergesFindsNothing) {
  EXPECT_EQ(MergeTable().rank(0, 0), MergeTable::kNoRank);
  EXPECT_TRUE(MergeTable().all_joined().empty());
}

// The last of two merges of one pair counts, as in the reader of `tokenizers`; a rank without a merge joins
// nothing.
TEST(MergeTable, TheLastMergeOfAPairCounts) {
  const MergeTable table({{1, 2, 3, 10}, {4, 5, 6, 11}, {1, 2, 8, 12}}, 13);
  EXPECT_EQ(table.rank(1, 2), 8u);
  EXPECT_EQ(table.joined(8), 12);
  EXPECT_EQ(table.all_joined()[7], -1);
}

}  // namespace
}  // namespace quintet::tokenizer
