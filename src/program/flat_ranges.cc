#include "program/flat_ranges.h"

#include "base/error.h"

namespace quintet::program {

std::vector<int64_t> to_attribute(std::span<const FlatRange> ranges) {
  std::vector<int64_t> numbers;
  for (const FlatRange& r : ranges) numbers.insert(numbers.end(), {r.operand, r.first, r.count, r.row});
  return numbers;
}

std::vector<FlatRange> flat_ranges(const graph::Attrs& attrs) {
  const std::vector<int64_t>& numbers = attrs.integers("ranges");
  QUINTET_CHECK(numbers.size() % 4 == 0, "{} numbers are not whole ranges of 4", numbers.size());
  std::vector<FlatRange> ranges;
  for (size_t i = 0; i < numbers.size(); i += 4)
    ranges.push_back({numbers[i], numbers[i + 1], numbers[i + 2], numbers[i + 3]});
  return ranges;
}

UpdateRates update_rates(const graph::Attrs& attrs, int64_t row) {
  UpdateRates rates{.weight_decay = attrs.real("weight_decay")};
  if (row >= 2) {
    const std::vector<double>& groups = attrs.reals("groups");
    const auto at = static_cast<size_t>(row / 2 - 1) * 2;
    QUINTET_CHECK(at + 1 < groups.size(), "row {} of {} groups", row, groups.size() / 2);
    rates = {groups[at], groups[at + 1]};
  }
  if (row % 2 == 0) rates.weight_decay = 0;
  return rates;
}

}  // namespace quintet::program
