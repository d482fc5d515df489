// Which rank takes which sequence of a global batch, by the cost of attention. The batch stays the same set
// of sequences, so its loss and gradient do not change; ranks finish their micro-batches at about the same
// time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace quintet::data {

// A permutation of the batch: entry s is the sequence that takes place s, where place (m * dp + r) * micro +
// i is row i of micro-batch m of data rank r. The most expensive sequence left goes to the rank with the
// least cost so far; each rank begins with its most expensive ones, so sequences of similar cost share a
// micro-batch. costs.size() is a multiple of micro * dp.
std::vector<int32_t> balanced_order(std::span<const int64_t> costs, int64_t micro, int64_t dp);

}  // namespace quintet::data
