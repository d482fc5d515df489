// The GPUs that a build has code for, from CMake's list of architectures: "90a" or "80;90a;100".
#pragma once

#include <string>
#include <string_view>

namespace quintet::exec::cuda {

// Whether a GPU of compute capability major.minor can run it: native code, or code for an older GPU that the
// driver can translate, which "90a" is not. For words such as "native" nothing is known: true.
bool has_code(std::string_view architectures, int major, int minor);
// The architecture to build for such a GPU: for Hopper the one with all its instructions.
std::string architecture_of(int major, int minor);

}  // namespace quintet::exec::cuda
