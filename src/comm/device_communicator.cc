#include "comm/device_communicator.h"

#include <fmt/format.h>

#include <exception>

#include "base/clock.h"
#include "comm/patience.h"

namespace quintet::comm {

void wait_for_device(const std::function<bool()>& done, const DeviceCommunicators& communicators,
                     World& world) {
  const int64_t start = base::now_ns(), timeout = world.timeout().count();
  Patience patience;
  try {
    while (!done()) {
      for (const auto& c : communicators) c->check();
      if (base::now_ns() - start > timeout)
        throw TimeoutError(fmt::format(
            "rank {} waited {:.3f} s for its GPU to finish what was enqueued; a peer has not come, or "
            "the work takes longer than the timeout. Calls made outside of graphs, the newest last:\n{}",
            world.rank(), static_cast<double>(timeout) * 1e-9, world.recorder().describe(8)));
      patience.pause();
    }
    // A call that was stopped by an error is done too.
    for (const auto& c : communicators) c->check();
  } catch (const std::exception& e) {
    for (const auto& c : communicators) c->abort(e.what());
    throw;
  }
}

}  // namespace quintet::comm
