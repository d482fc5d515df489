// Log-probabilities of texts, several packed into one forward pass.
#pragma once

#include <span>
#include <vector>

#include "generate/source.h"

namespace quintet::generate {

struct Scored {
  std::vector<double> log_probs;  // of ids[1], ids[2], ...: each given all before it
};

struct ScoreOptions {
  int64_t pack_rows = 2048;  // of a forward pass; more where a text is longer
  int threads = 1;
  int64_t local_rank = 0;
  std::function<void(const std::string&)> log = {};
};

// The texts' tokens, at least one each. Collective over the world, the same result on all ranks.
std::vector<Scored> score(const Source& source, comm::World& world,
                          std::span<const std::vector<int32_t>> texts, const ScoreOptions& options);

}  // namespace quintet::generate
