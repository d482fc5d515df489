// How a thread waits for something that only asking can tell: first it gives its turn away, then it sleeps a
// little longer each time, up to a millisecond.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace quintet::comm {

class Patience {
 public:
  void pause() {
    if (looks_++ < kSpins) return std::this_thread::yield();
    std::this_thread::sleep_for(nap_);
    nap_ = std::min(nap_ * 2, kLongest);
  }

 private:
  static constexpr int kSpins = 64;
  static constexpr std::chrono::microseconds kLongest{1000};
  int looks_ = 0;
  std::chrono::microseconds nap_{10};
};

}  // namespace quintet::comm
