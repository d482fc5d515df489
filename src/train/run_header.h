// What a run says before its first step: each thing the recipe asks for and what it amounts to here, with
// counts taken from the program that will run.
#pragma once

#include <string>
#include <vector>

#include "config/recipe.h"
#include "train/rank.h"
#include "train/run_data.h"

namespace quintet::train {

struct HeaderFacts {
  std::string backend;  // "threads of this process", "MPI processes"
  int threads = 1;      // of each rank's kernels
  std::string device;   // "NVIDIA H200"; empty: the CPU
  int64_t compile_ns = 0;
};

std::vector<std::string> header_lines(const config::Recipe& recipe, const RunData& data, const Rank& rank,
                                      const HeaderFacts& facts);

}  // namespace quintet::train
