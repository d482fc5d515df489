// A watchdog for a piece of work: a thread that is stuck in a driver call cannot check the time itself.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>

namespace quintet::exec {

class Watch {
 public:
  // Calls `late`, from its own thread, unless this object is destroyed within `limit`.
  Watch(std::chrono::nanoseconds limit, std::function<void()> late)
      : thread_([limit, late = std::move(late)](const std::stop_token& gone) {
          std::mutex mutex;
          std::condition_variable_any never;
          std::unique_lock lock(mutex);
          never.wait_for(lock, gone, limit, [] { return false; });
          if (!gone.stop_requested()) late();
        }) {}

 private:
  std::jthread thread_;  // stopped and joined by the destructor
};

}  // namespace quintet::exec
