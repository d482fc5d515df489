// Counts this program's calls to the CUDA runtime that allocate memory, wait for the device or launch a
// graph. The linker redirects the calls of everything that is linked statically (--wrap in CMakeLists.txt);
// calls inside the vendor's libraries are not seen.
#pragma once

#include <cstdint>

namespace quintet::test {

struct RuntimeCalls {
  int64_t allocations = 0, waits = 0, graph_launches = 0;
};
RuntimeCalls runtime_calls();

}  // namespace quintet::test
