// Texts of all ranks, brought to rank 0.
#pragma once

#include <string>
#include <vector>

#include "comm/communicator.h"

namespace quintet::train {

// Collective. By rank on rank 0; empty on the others.
std::vector<std::string> gather_texts(comm::World& world, const std::string& mine);

}  // namespace quintet::train
