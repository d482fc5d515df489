// Polling backoff: first yields, then sleeps between polls, each time for a small fraction of the time slept
// so far, so that the wake-up is never late by much.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace quintet::comm {

class Backoff {
 public:
  void pause() {
    if (looks_++ < kSpins) return std::this_thread::yield();
    const std::chrono::microseconds nap = std::clamp(slept_ / 64, kShortest, kLongest);
    std::this_thread::sleep_for(nap);
    slept_ += nap;
  }

 private:
  static constexpr int kSpins = 64;
  static constexpr std::chrono::microseconds kShortest{5}, kLongest{200};
  int looks_ = 0;
  std::chrono::microseconds slept_{0};
};

}  // namespace quintet::comm
