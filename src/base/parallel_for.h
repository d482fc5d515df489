// Runs independent one-off work, such as compiling for many ranks, on a few threads. (Kernels use the thread
// pool of room device.)
#pragma once

#include <cstddef>
#include <functional>

namespace quintet::base {

// Calls body(i) for every i < `count` on at most `threads` threads, including the caller. After a failure, no
// new call starts; of the exceptions thrown, the one with the lowest i is rethrown.
void parallel_for(int threads, size_t count, const std::function<void(size_t)>& body);

}  // namespace quintet::base
