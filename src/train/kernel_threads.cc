#include <sched.h>

#include <algorithm>
#include <thread>

#include "config/environment.h"
#include "train/loop.h"

namespace quintet::train {

int kernel_threads(const config::Recipe& recipe, int64_t ranks_here) {
  if (recipe.run.threads > 0) return static_cast<int>(recipe.run.threads);
  cpu_set_t set;
  CPU_ZERO(&set);
  const int64_t own =
      ::sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : std::thread::hardware_concurrency();
  return static_cast<int>(share_of_cores(own, config::host_cores().value_or(own), ranks_here));
}

int64_t share_of_cores(int64_t own, int64_t of_host, int64_t ranks_here) {
  const int64_t share = std::max(own, of_host) / std::max<int64_t>(1, ranks_here);
  return std::max<int64_t>(1, std::min(own, share));
}

}  // namespace quintet::train
