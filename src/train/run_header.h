// The header of a run. Lines begin with a label of 13 columns.
#pragma once

#include <string>
#include <vector>

#include "config/nccl_variables.h"
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
  std::vector<config::NcclVariable> nccl = {};  // that are set, on GPUs
  int64_t copies_bytes = 0;  // host memory of rank 0 for copies of its state, in addition to its arena
};

// What a reader wants to see at the start: what is trained on what, how much, where, and how large.
std::vector<std::string> short_header_lines(const config::Recipe& recipe, const RunData& data,
                                            const Rank& rank, const HeaderFacts& facts);

// Every setting of the recipe and its effect in this layout, with counts taken from the compiled program.
std::vector<std::string> header_lines(const config::Recipe& recipe, const RunData& data, const Rank& rank,
                                      const HeaderFacts& facts);

}  // namespace quintet::train
