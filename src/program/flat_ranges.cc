#include "program/flat_ranges.h"

#include "base/error.h"

namespace quintet::program {

std::vector<int64_t> to_attribute(std::span<const FlatRange> ranges) {
  std::vector<int64_t> numbers;
  for (const FlatRange& r : ranges) numbers.insert(numbers.end(), {r.operand, r.first, r.count, r.decay});
  return numbers;
}

std::vector<FlatRange> flat_ranges(const graph::Attrs& attrs) {
  const std::vector<int64_t>& numbers = attrs.integers("ranges");
  QUINTET_CHECK(numbers.size() % 4 == 0, "{} numbers are not whole ranges of 4", numbers.size());
  std::vector<FlatRange> ranges;
  for (size_t i = 0; i < numbers.size(); i += 4)
    ranges.push_back({numbers[i], numbers[i + 1], numbers[i + 2], numbers[i + 3] != 0});
  return ranges;
}

}  // namespace quintet::program
