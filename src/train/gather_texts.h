// Gathers one text per rank on rank 0.
#pragma once

#include <string>
#include <vector>

#include "comm/communicator.h"

namespace quintet::train {

// Collective. Returns the texts by rank on rank 0, nothing on other ranks.
std::vector<std::string> gather_texts(comm::World& world, const std::string& mine);

}  // namespace quintet::train
