// Which cards a build has code for, by its list of architectures as CMake takes it: "90a" or "80;90a;100".
#pragma once

#include <string>
#include <string_view>

namespace quintet::exec::cuda {

// Whether a card of compute capability major.minor can run it: code of its own, or code for an older card
// that the driver translates, which no "90a" is. Words such as "native" say nothing, so yes.
bool has_code(std::string_view architectures, int major, int minor);
// The one to build for such a card: of Hopper the one with all its instructions.
std::string architecture_of(int major, int minor);

}  // namespace quintet::exec::cuda
