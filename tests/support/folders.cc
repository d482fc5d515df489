#include "support/folders.h"

namespace quintet::test {

std::string source_dir() { return QUINTET_SOURCE_DIR; }
std::string binary_dir() { return QUINTET_BINARY_DIR; }

}  // namespace quintet::test
