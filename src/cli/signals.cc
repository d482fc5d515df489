#include "cli/signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace quintet::cli {
namespace {

std::atomic<int> asked{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may only access lock-free atomics");

void on_signal(int number) {
  int none = 0;
  if (asked.compare_exchange_strong(none, number)) {
    static constexpr char kNote[] = "\nstopping after this step; press again to stop immediately\n";
    if (number == SIGINT && ::write(STDERR_FILENO, kNote, sizeof(kNote) - 1) < 0) return;
    return;
  }
  ::signal(number, SIG_DFL);
  ::raise(number);
}

}  // namespace

void install_signal_handlers() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) ::sigaction(number, &action, nullptr);
}

int asked_to_stop() { return asked.load(); }

}  // namespace quintet::cli
