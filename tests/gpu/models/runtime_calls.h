// How often this program has asked the CUDA runtime for memory, waited for the device or launched a graph.
// The linker leads the calls of everything that is linked statically through here (--wrap in CMakeLists.txt);
// what the vendor's libraries do inside is not seen.
#pragma once

#include <cstdint>

namespace quintet::test {

struct RuntimeCalls {
  int64_t allocations = 0, waits = 0, graph_launches = 0;
};
RuntimeCalls runtime_calls();

}  // namespace quintet::test
