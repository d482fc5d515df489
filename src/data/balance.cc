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
  std::vector<int64_t> total(static_cast<size_t>(dp), 0), rows(static_cast<size_t>(dp), 0);
  for (const int32_t sequence : by_cost) {
    size_t rank = total.size();
    for (size_t r = 0; r < total.size(); ++r)
      if (rows[r] < count / dp && (rank == total.size() || total[r] < total[rank])) rank = r;
    // A rank's sequences come in descending order of cost, so those of a micro-batch are alike on all ranks.
    const int64_t micro_batch = rows[rank] / micro, row = rows[rank]++ % micro;
    total[rank] += costs[static_cast<size_t>(sequence)];
    order[static_cast<size_t>((micro_batch * dp + static_cast<int64_t>(rank)) * micro + row)] = sequence;
  }
  return order;
}

}  // namespace quintet::data
