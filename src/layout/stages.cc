#include "layout/stages.h"

#include <numeric>

#include "base/error.h"

namespace quintet::layout {

Stages one_stage(int num_blocks) {
  return {.of_block = std::vector<int>(static_cast<size_t>(num_blocks), 0), .rank_of = {0}, .chunk_of = {0}};
}

std::vector<int> stage_of_blocks(const std::vector<int64_t>& layers, int num_blocks) {
  QUINTET_CHECK(std::accumulate(layers.begin(), layers.end(), int64_t{0}) == num_blocks - 2,
                "layers per stage do not add up to {}", num_blocks - 2);
  std::vector<int> of = {0};
  for (size_t s = 0; s < layers.size(); ++s)
    of.insert(of.end(), static_cast<size_t>(layers[s]), static_cast<int>(s));
  of.push_back(static_cast<int>(layers.size()) - 1);
  return of;
}

}  // namespace quintet::layout
