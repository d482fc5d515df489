// Megatron-LM's layout strings for pipeline stages (--pipeline-model-parallel-layout), as parallel.stages
// takes them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quintet::config {

struct StageLayout {
  std::vector<int64_t> stages;  // blocks per virtual stage, that of multi-token prediction included
  std::string error;            // why the string is not accepted; empty: it is
};

// "Et*3|(tt|)*29,t|L": stages between bars, t a block, m that of multi-token prediction, E the embedding, L
// the head and the losses; x*n and (...)*n repeat, commas mean nothing. The embedding must be in the first
// stage and the head in the last, where they always are, and m after every t. Without m multi-token
// prediction stays with the head.
StageLayout parse_stage_layout(std::string_view text);

}  // namespace quintet::config
