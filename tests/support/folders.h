#pragma once

#include <string>

namespace quintet::test {

// The repository and the folder of the build. Their paths are compiled into one small unit (folders.cc), so
// that a compiler cache serves the tests of every clone.
std::string source_dir();
std::string binary_dir();

}  // namespace quintet::test
