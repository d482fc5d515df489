// A 32-bit word that threads wait on. Waiting spins for a microsecond or two if the caller says that every
// peer can have its own core, yields twice, then sleeps in the kernel: with more ranks than cores, a spinning
// thread only keeps its peers from running.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace quintet::comm::local {

using Clock = std::chrono::steady_clock;
inline constexpr Clock::time_point kNever = Clock::time_point::max();

class WaitWord {
 public:
  std::atomic<uint32_t> value{0};

  // Returns when value is (or has been) different from `old`, or when the deadline has passed.
  void wait_while(uint32_t old, Clock::time_point deadline, bool may_spin);
  // Call after every change of value that a waiter must see. Costs one load if nobody sleeps.
  void notify_all();

 private:
  std::atomic<uint32_t> sleepers_{0};
};

}  // namespace quintet::comm::local
