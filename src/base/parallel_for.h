// Independent pieces of one-off work, such as compiling for many ranks, on a few threads. (Kernels have a
// pool of their own, room device.)
#pragma once

#include <cstddef>
#include <functional>

namespace quintet::base {

// body(i) for every i below `count`, on at most `threads` threads of which the caller is one. After a failure
// no further piece is begun; of the exceptions that came, that of the lowest i is rethrown.
void parallel_for(int threads, size_t count, const std::function<void(size_t)>& body);

}  // namespace quintet::base
