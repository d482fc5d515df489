// Saves and loads the weights of a run as one safetensors file. The file does not depend on the layout: it
// contains whole parameters by name, in the dtype the optimizer updates, followed by the states
// (Rank::states).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "comm/communicator.h"
#include "train/rank.h"

namespace quintet::train {

// The tensors that save_weights writes, in file order; the same on all ranks.
std::vector<checkpoint::TensorInfo> saved_tensors(const Rank& rank);

// File size without the header.
int64_t saved_bytes(const Rank& rank);

enum class Saved : uint8_t {
  Weights,
  Averages,  // of the weights over steps (optimizer.ema), by the same names; of frozen parameters the weights
};

// Collective. Gathers one parameter at a time over all ranks; rank 0 writes. The file appears atomically.
// Returns on rank 0 why it could not be written, as for a full disk, and an empty string otherwise. The other
// ranks do not learn of it, and ignore `path`.
std::string try_save_weights(const Rank& rank, comm::World& world, const std::string& path,
                             const std::map<std::string, std::string>& metadata, Saved what = Saved::Weights);
// The same; a failure is a UserError of rank 0.
void save_weights(const Rank& rank, comm::World& world, const std::string& path,
                  const std::map<std::string, std::string>& metadata, Saved what = Saved::Weights);

// Every rank reads its own part of a file written from any layout. UserError unless the file contains exactly
// the model's parameters and states, with matching shapes. Averages of weights start from the loaded weights.
void load_weights(Rank& rank, const std::string& path);

}  // namespace quintet::train
