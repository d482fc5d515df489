// Which algorithm runs each matrix product, agreed by all ranks and kept in a file, so that a run that is
// repeated takes the same ones and gives the same bits. Needs no device.
//
// A text of choices has a line per problem: device and library | problem | time | algorithm
// (kernels::cuda::Matmul::tuned).
#pragma once

#include <span>
#include <string>

#include "base/file.h"
#include "comm/communicator.h"

namespace quintet::exec::cuda {

// One text of all; where they choose differently for a problem on a device, the first counts. What is no line
// of choices is left out.
std::string merge_algorithms(std::span<const std::string> texts);

// What rank 0 says, on all ranks. Collective over the world, like the next.
std::string broadcast_algorithms(const std::string& text, comm::World& world);

// `mine` is what this rank knows, and `found_new` whether that is more than the file held. What the file
// holds by now counts first (another run may have written it meanwhile), then what the lowest rank found;
// rank 0 writes it back if anybody found something. Returns what all ranks take, the same on all.
std::string agree_on_algorithms(const std::string& mine, bool found_new, const base::Path& file,
                                comm::World& world);

}  // namespace quintet::exec::cuda
