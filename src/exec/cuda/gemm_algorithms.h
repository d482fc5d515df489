// The tuned GEMM algorithms, agreed on by all ranks and stored in a file, so that a repeated run uses the
// same ones and gives the same bits. Needs no device.
//
// A text of choices has a line per problem: device and library | problem | time | algorithm
// (kernels::cuda::Matmul::tuned).
#pragma once

#include <span>
#include <string>

#include "base/file.h"
#include "comm/communicator.h"

namespace quintet::exec::cuda {

// Merges all texts; where they choose differently for a problem on a device, the first one wins. Lines that
// are not choices are dropped.
std::string merge_algorithms(std::span<const std::string> texts);

// Returns rank 0's text on all ranks. Collective over the world, like the next.
std::string broadcast_algorithms(const std::string& text, comm::World& world);

// `mine` is what this rank knows, and `found_new` whether that is more than the file held. The file's current
// contents take precedence (another run may have written it meanwhile), then the lowest rank's choices;
// rank 0 writes it back if any rank found something new. Returns the same choices on all ranks.
std::string agree_on_algorithms(const std::string& mine, bool found_new, const base::Path& file,
                                comm::World& world);

}  // namespace quintet::exec::cuda
