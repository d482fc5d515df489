// The weights of a run as one plain safetensors file, and back. The file knows no layout: it holds whole
// parameters by name, in the dtype the optimizer updates, and after them the states (Rank::states).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "comm/communicator.h"
#include "train/rank.h"

namespace quintet::train {

// What save_weights writes, in the order of the file; equal on all ranks.
std::vector<checkpoint::TensorInfo> saved_tensors(const Rank& rank);

// Bytes of the file without its header.
int64_t saved_bytes(const Rank& rank);

// Gathers one parameter after another over all ranks; rank 0 writes. Collective. The file appears whole at
// the end or not at all; a disk that is full is a UserError.
void save_weights(const Rank& rank, comm::World& world, const std::string& path,
                  const std::map<std::string, std::string>& metadata);

// Every rank reads its own part, whatever layout the file was written from. UserError unless the file holds
// exactly the model's parameters and states, with their shapes.
void load_weights(Rank& rank, const std::string& path);

}  // namespace quintet::train
