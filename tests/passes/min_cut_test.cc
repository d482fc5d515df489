#include "passes/min_cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

namespace quintet::passes {
namespace {

TEST(MinCut, AgreesWithBruteForce) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const size_t n = 3 + random() % 6;
    std::vector<std::vector<int64_t>> capacity(n, std::vector<int64_t>(n, 0));
    MinCut graph(n);
    for (size_t a = 0; a < n; ++a)
      for (size_t b = 0; b < n; ++b)
        if (a != b && random() % 2 == 0) {
          capacity[a][b] = static_cast<int64_t>(random() % 10);
          graph.add(a, b, capacity[a][b]);
        }
    const auto cost = [&](const auto& on_source_side) {
      int64_t sum = 0;
      for (size_t a = 0; a < n; ++a)
        for (size_t b = 0; b < n; ++b)
          if (on_source_side(a) && !on_source_side(b)) sum += capacity[a][b];
      return sum;
    };
    int64_t least = std::numeric_limits<int64_t>::max();
    size_t fewest = n;
    for (uint32_t set = 0; set < 1u << n; ++set) {
      if (!(set & 1) || (set & 2)) continue;
      const int64_t here = cost([&](size_t i) { return (set >> i & 1) != 0; });
      const auto size = static_cast<size_t>(__builtin_popcount(set));
      if (here < least) least = here, fewest = size;
      if (here == least) fewest = std::min(fewest, size);
    }
    const std::vector<char> side = graph.source_side(0, 1);
    EXPECT_EQ(cost([&](size_t i) { return side[i] != 0; }), least);
    EXPECT_EQ(static_cast<size_t>(std::count(side.begin(), side.end(), 1)), fewest);
  }
}

}  // namespace
}  // namespace quintet::passes
