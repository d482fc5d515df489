// The header of a run: every setting of the recipe and its effect in this layout, with counts taken from the
// compiled program.
#pragma once

#include <string>
#include <vector>

#include "config/recipe.h"
#include "train/rank.h"
#include "train/run_data.h"

namespace quintet::train {

struct HeaderFacts {
  std::string backend;               // "threads of this process", "MPI processes"
  int threads = 1;                   // kernel threads per rank
  std::string device;                // "NVIDIA H200"; empty: CPU
  std::string disabled_passes = {};  // "fold, pack"; empty: none
  int64_t compile_ns = 0;
};

std::vector<std::string> header_lines(const config::Recipe& recipe, const RunData& data, const Rank& rank,
                                      const HeaderFacts& facts);

}  // namespace quintet::train
