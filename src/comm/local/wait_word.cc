#include "comm/local/wait_word.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace quintet::comm::local {
namespace {

constexpr int kSpins = 50;  // about 2 us of pause instructions
constexpr int kYields = 2;  // often the awaited peer is next to run on this core: cheaper than sleeping

uint32_t* address(std::atomic<uint32_t>& word) {
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
  return reinterpret_cast<uint32_t*>(&word);
}

}  // namespace

void WaitWord::wait_while(uint32_t old, Clock::time_point deadline, bool may_spin) {
  for (int i = 0; may_spin && i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    __builtin_ia32_pause();
  }
  for (int i = 0; i < kYields; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    sched_yield();
  }
  // The kernel compares the word again after we are counted, and notify_all checks the count after the
  // change: one of the two sees the other.
  sleepers_.fetch_add(1);
  while (value.load() == old) {
    timespec left{};
    timespec* timeout = nullptr;
    if (deadline != kNever) {
      const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - Clock::now()).count();
      if (ns <= 0) break;
      left = {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
      timeout = &left;
    }
    syscall(SYS_futex, address(value), FUTEX_WAIT_PRIVATE, old, timeout, nullptr, 0);
  }
  sleepers_.fetch_sub(1);
}

void WaitWord::notify_all() {
  if (sleepers_.load() != 0)
    syscall(SYS_futex, address(value), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace quintet::comm::local
