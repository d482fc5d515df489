// The first weights of a run from a Hugging Face folder (model.hf).
#pragma once

#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "hf/model_folder.h"
#include "train/rank.h"

namespace quintet::train {

// The model's parameters and states (router biases) with their shapes, those of all pipeline stages; the same
// on all ranks.
std::vector<checkpoint::TensorInfo> model_tensors(const Rank& rank);

struct HfLoad {
  int64_t bytes_read = 0;    // from files, by this rank
  int64_t bytes_stored = 0;  // weights and averages of this rank
};
// Reads this rank's part of every weight, in any layout: only the bytes that it stores, straight into place
// where files store them as wanted, otherwise through one buffer per thread that reads. Averages of weights
// begin as the weights; weights that no file has (routers of upcycled experts) are drawn.
HfLoad load_hf(Rank& rank, const hf::ModelFolder& folder);
// The same on all ranks together. Returns what to report about it. Collective.
std::vector<std::string> load_first_weights_of(const std::string& path, const hf::ModelFolder& folder,
                                               Rank& rank, comm::World& world);

}  // namespace quintet::train
