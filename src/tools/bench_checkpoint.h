// `quintet bench checkpoint`: what saving and loading a recipe's state costs here, without training.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "config/recipe.h"

namespace quintet::tools {

struct CheckpointBenchOptions {
  base::Path folder;       // of the checkpoints, which are removed afterwards
  int64_t rounds = 5;      // saves and loads
  bool copy_only = false;  // only the copy into staging memory: nothing is written
};

struct CheckpointBench {
  int64_t bytes = 0;        // of the state, over all ranks
  int64_t bytes_first = 0;  // that rank 0 copies and writes
  int64_t files = 0;        // shards of a checkpoint
  // By round. `stop` is the time for which training stops, `memcpy` that of copying as many bytes of host
  // memory on all ranks and nothing else, `copy` that until rank 0's copy is in host memory,
  // `save` that until the checkpoint is complete on disk, `load` that of reading it back from the disk, and
  // `load_cached` that of reading it from the page cache.
  struct Round {
    double stop = 0, memcpy = 0, copy = 0, save = 0, load = 0, load_cached = 0;
    double save_cpu = 0, load_cpu = 0;  // processor seconds that all ranks used for it
  };
  std::vector<Round> rounds;
  // Bytes per second of copying rank 0's largest piece alone: what the link to the device sustains.
  double link_rate = 0;

  double median(double Round::*what) const;
};

// Ranks are threads of this process. UserError when the folder already has checkpoints.
CheckpointBench bench_checkpoint(config::Recipe recipe, const CheckpointBenchOptions& options);

std::string to_table(const CheckpointBench& bench);
std::string to_json(const CheckpointBench& bench);

}  // namespace quintet::tools
