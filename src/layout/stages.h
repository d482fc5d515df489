// How a pipeline splits the model: blocks into virtual stages, virtual stages onto pipeline ranks.
#pragma once

#include <cstdint>
#include <vector>

namespace quintet::layout {

struct Stages {
  std::vector<int> of_block;  // by block label: its virtual stage, non-decreasing
  // By virtual stage: the pipeline rank that holds it, and as which chunk.
  std::vector<int> rank_of, chunk_of;

  int count() const { return static_cast<int>(rank_of.size()); }
  int rank_of_block(int block) const {
    return rank_of[static_cast<size_t>(of_block[static_cast<size_t>(block)])];
  }
  int chunk_of_block(int block) const {
    return chunk_of[static_cast<size_t>(of_block[static_cast<size_t>(block)])];
  }
};

// No pipeline: one stage.
Stages one_stage(int num_blocks);

// Block labels from layers per virtual stage: label 0 goes to the first stage, the last label to the last.
std::vector<int> stage_of_blocks(const std::vector<int64_t>& layers, int num_blocks);

}  // namespace quintet::layout
