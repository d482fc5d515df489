// The intervals, tiles and walks of kernels/attention_interval.h against the definition of attention
// (kernels/attention_geometry.h), pair by pair, as the tiled kernels use them.
#include "kernels/attention_interval.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace quintet::kernels {
namespace {

struct Geometry {
  base::RowOrder q_rows, k_rows;
  MaskRule rule;
  int group = 1;
  std::vector<int32_t> documents;  // of whole sequences by position, [sequences, seq_len]
};

struct Place {
  int sequence, position;
};
std::vector<Place> places(const base::RowOrder& rows) {
  std::vector<Place> list(static_cast<size_t>(rows.rows()));
  for (int64_t s = 0; s < rows.sequences; ++s)
    for (int64_t r = 0; r < rows.runs(); ++r) {
      const auto run = rows.run(s, r);
      for (int64_t i = 0; i < run.length; ++i)
        list[static_cast<size_t>(run.row + i)] = {static_cast<int>(s), static_cast<int>(run.position + i)};
    }
  return list;
}

int32_t document(const Geometry& g, Place p) {
  return g.documents[static_cast<size_t>(p.sequence * g.k_rows.seq_len + p.position)];
}
bool sees(const Geometry& g, Place q, Place k) {
  if (q.sequence != k.sequence || document(g, q) < 0 || document(g, q) != document(g, k)) return false;
  const int distance = q.position - k.position, window = g.rule.window;
  if (g.rule.causal) return distance >= 0 && (window == 0 || distance < window);
  return window == 0 || std::abs(distance) < window;
}
// The span of a position's document; for padding, which comes last, it is empty, at the first padding
// position.
Span span_at(const Geometry& g, int sequence, int position) {
  const auto id = [&](int at) { return document(g, {sequence, at}); };
  Span span{position, position + 1};
  if (id(position) < 0) {
    while (span.begin > 0 && id(span.begin - 1) < 0) --span.begin;
    return {span.begin, span.begin};
  }
  while (span.begin > 0 && id(span.begin - 1) == id(position)) --span.begin;
  while (span.end < g.k_rows.seq_len && id(span.end) == id(position)) ++span.end;
  return span;
}

Geometry random_geometry(std::mt19937& random) {
  const auto pick = [&](std::initializer_list<int64_t> of) { return *(of.begin() + random() % of.size()); };
  Geometry g;
  const int64_t ranks = pick({1, 1, 2, 4}), sequences = pick({1, 2, 3});
  const int64_t length = ranks == 1 ? 1 + static_cast<int64_t>(random() % 90)
                                    : 2 * ranks * (1 + static_cast<int64_t>(random() % 12));
  g.q_rows = g.k_rows = {length, sequences, ranks, 0, 1};
  if (ranks > 1) switch (random() % 4) {
      case 0:  // a hop of a ring
        g.q_rows.first = static_cast<int64_t>(random() % static_cast<uint64_t>(ranks));
        g.k_rows.first = static_cast<int64_t>(random() % static_cast<uint64_t>(ranks));
        break;
      case 1:
        g.q_rows.count = g.k_rows.count = ranks;
        break;
      case 2:  // gathered keys
        g.q_rows.first = static_cast<int64_t>(random() % static_cast<uint64_t>(ranks));
        g.k_rows.count = ranks;
        break;
      default:
        g.q_rows.count = g.k_rows.count = 2;
        g.q_rows.first = 2 * static_cast<int64_t>(random() % static_cast<uint64_t>(ranks / 2));
        break;
    }
  g.rule = {static_cast<int>(pick({0, 0, 1, 2, 9, 40})), random() % 4 != 0};
  g.group = static_cast<int>(pick({1, 2, 3, 4, 7, 24}));
  for (int64_t s = 0; s < sequences; ++s) {
    int32_t id = 0;
    const bool one = random() % 4 == 0;
    const int64_t padding =
        random() % 3 == 0 ? static_cast<int64_t>(random() % static_cast<uint64_t>(length + 1)) : 0;
    for (int64_t p = 0; p < length; ++p) {
      if (p > 0 && !one && random() % 6 == 0) id += 1 + static_cast<int32_t>(random() % 3);
      g.documents.push_back(p >= length - padding ? -1 : id);
    }
  }
  return g;
}

TEST(AttentionInterval, RowRunsAreRowOrder) {
  for (const base::RowOrder& order : {base::RowOrder{30, 3, 1, 0, 1}, base::RowOrder{24, 2, 4, 1, 1},
                                      base::RowOrder{24, 2, 4, 2, 2}, base::RowOrder{24, 3, 2, 0, 2}}) {
    const RowRuns runs(order);
    for (int s = 0; s < runs.sequences; ++s) {
      for (int r = 0; r < runs.runs; ++r) {
        EXPECT_EQ(runs.run(s, r).row, order.run(s, r).row);
        EXPECT_EQ(runs.run(s, r).position, order.run(s, r).position);
      }
      for (int p = 0; p < runs.seq_len; ++p) EXPECT_EQ(runs.row_in_whole(s, p), order.row_in_whole(s, p));
    }
  }
}

TEST(AttentionInterval, SpansAreTheDefinition) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const Geometry g = random_geometry(random);
    const auto length = static_cast<int>(g.k_rows.seq_len);
    for (int s = 0; s < g.k_rows.sequences; ++s) {
      Span last_keys{0, 0}, last_queries{0, 0};
      for (int i = 0; i < length; ++i) {
        const Span keys = keys_of(i, span_at(g, s, i), g.rule),
                   queries = queries_of(i, span_at(g, s, i), g.rule);
        for (int j = 0; j < length; ++j) {
          ASSERT_EQ(j >= keys.begin && j < keys.end, sees(g, {s, i}, {s, j}))
              << "query " << i << ", key " << j;
          ASSERT_EQ(j >= queries.begin && j < queries.end, sees(g, {s, j}, {s, i}));
        }
        // Tiles derive their range from their first and last row.
        ASSERT_TRUE(keys.begin >= last_keys.begin && keys.end >= last_keys.end);
        ASSERT_TRUE(queries.begin >= last_queries.begin && queries.end >= last_queries.end);
        last_keys = keys, last_queries = queries;
      }
    }
  }
}

// Every visible pair is met exactly once, and no other passes: tiles of `own` rows that walk blocks of the
// other side, by the intervals of one side. Every row that is met has a visible pair with the tile: kernels
// leave rows without any uncomputed.
TEST(AttentionInterval, WalksMeetEveryPairOnce) {
  std::mt19937 random(2);
  for (int round = 0; round < 200; ++round) {
    const Geometry g = random_geometry(random);
    const auto q_places = places(g.q_rows), k_places = places(g.k_rows);
    for (const bool by_keys : {false, true}) {
      const base::RowOrder &own_order = by_keys ? g.k_rows : g.q_rows,
                           &other_order = by_keys ? g.q_rows : g.k_rows;
      const RowRuns own(own_order), other(other_order);
      const int size = 1 + static_cast<int>(random() % 20), block = 1 + static_cast<int>(random() % 20);
      const auto seen = [&](int s, int position) {
        const Span document = span_at(g, s, position);
        return by_keys ? queries_of(position, document, g.rule) : keys_of(position, document, g.rule);
      };
      std::map<std::pair<int, int>, int> met;  // rows of q and k
      for (int s = 0; s < own.sequences; ++s)
        for (int r = 0; r < own.runs; ++r)
          for (int offset = 0; offset < own.length; offset += size) {
            const RowRuns::Run run = own.run(s, r);
            const int first = run.position + offset, count = lesser(size, own.length - offset);
            const Span range{seen(s, first).begin, seen(s, first + count - 1).end};
            BlockWalk walk;
            std::vector<std::array<int, 3>> blocks;
            while (walk.next(other, s, range, block)) {
              blocks.push_back({walk.row, walk.position, walk.count(block)});
              std::set<int> unmet;
              for (int j = 0; j < walk.count(block); ++j) unmet.insert(walk.position + j);
              for (int i = 0; i < count; ++i)
                for (int j = 0; j < walk.count(block); ++j) {
                  const Span keys = seen(s, first + i);
                  if (walk.position + j < keys.begin || walk.position + j >= keys.end) continue;
                  unmet.erase(walk.position + j);
                  const int mine = run.row + offset + i, theirs = walk.row + j;
                  ++met[by_keys ? std::pair{theirs, mine} : std::pair{mine, theirs}];
                }
              ASSERT_TRUE(unmet.empty()) << "position " << *unmet.begin();
            }
            ReverseWalk back;
            for (; back.next(other, s, range, block); blocks.pop_back()) {
              ASSERT_FALSE(blocks.empty());
              ASSERT_EQ(blocks.back(), (std::array{back.row, back.position, back.count(block)}));
            }
            ASSERT_TRUE(blocks.empty());
          }
      for (const auto& [pair, times] : met) ASSERT_EQ(times, 1);
      size_t expected = 0;
      for (size_t i = 0; i < q_places.size(); ++i)
        for (size_t j = 0; j < k_places.size(); ++j)
          if (sees(g, q_places[i], k_places[j])) {
            ++expected;
            ASSERT_TRUE(met.contains({static_cast<int>(i), static_cast<int>(j)}));
          }
      ASSERT_EQ(met.size(), expected);
    }
  }
}

TEST(AttentionInterval, HeadsArePackedIntoRows) {
  for (const int rows : {32, 64, 128})
    for (int group = 1; group <= 200; ++group) {
      const HeadPacking packing(group, rows);
      ASSERT_EQ(packing.heads * packing.parts, group);
      ASSERT_LE(packing.heads * packing.tokens, rows);
      ASSERT_GE(packing.tokens, 1);
      for (int r = 0; r < rows; ++r) ASSERT_EQ(packing.token(r), r / packing.heads) << group << " " << r;
    }
}

}  // namespace
}  // namespace quintet::kernels
