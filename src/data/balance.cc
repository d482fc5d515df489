#include "data/balance.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace quintet::data {

std::vector<int32_t> balanced_order(std::span<const int64_t> costs, int64_t micro, int64_t dp) {
  const auto count = static_cast<int64_t>(costs.size());
  QUINTET_CHECK(micro > 0 && dp > 0 && count % (micro * dp) == 0, "{} sequences for micro {} x dp {}", count,
                micro, dp);
  std::vector<int32_t> by_cost(costs.size());
  std::iota(by_cost.begin(), by_cost.end(), 0);
  std::ranges::stable_sort(by_cost, [&](int32_t a, int32_t b) {
    return costs[static_cast<size_t>(a)] > costs[static_cast<size_t>(b)];
  });
  std::vector<int32_t> order(costs.size());
  std::vector<int64_t> total(static_cast<size_t>(dp), 0), rows(static_cast<size_t>(dp));
  for (int64_t first = 0; first < count; first += micro * dp) {
    std::ranges::fill(rows, 0);
    for (int64_t i = first; i < first + micro * dp; ++i) {
      int64_t rank = -1;
      for (int64_t r = 0; r < dp; ++r)
        if (rows[static_cast<size_t>(r)] < micro &&
            (rank < 0 || total[static_cast<size_t>(r)] < total[static_cast<size_t>(rank)]))
          rank = r;
      const int32_t sequence = by_cost[static_cast<size_t>(i)];
      total[static_cast<size_t>(rank)] += costs[static_cast<size_t>(sequence)];
      order[static_cast<size_t>(first + rank * micro + rows[static_cast<size_t>(rank)]++)] = sequence;
    }
  }
  return order;
}

}  // namespace quintet::data
