// Recorded choices of experts, which training repeats (data.routes): for every row of some samples, the
// experts that the routers of all blocks chose, block after block.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace quintet::data {

struct RouteTable {
  std::string name;   // for messages
  int64_t first = 0;  // place of the first sample in the run's order: MicroBatch::samples
  int64_t samples = 0, seq_len = 0;
  int64_t columns = 0;              // choices of a row, in all blocks
  std::span<const int32_t> ids;     // [samples, seq_len], of the tokens that were routed
  std::span<const int16_t> routes;  // [samples, seq_len, columns]; -1 in a block's first: the router chooses
  std::shared_ptr<const void> memory;  // what they point to
};

// Fills the rows of one sample, given the ids that it has in the run: the choices plus 1. UserError unless
// the table has the sample with these ids.
void fill_routes(const RouteTable& table, int64_t place, std::span<const int32_t> ids,
                 std::span<int32_t> out);

}  // namespace quintet::data
