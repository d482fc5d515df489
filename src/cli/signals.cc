#include "cli/signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "base/clock.h"

namespace quintet::cli {
namespace {

std::atomic<int> asked{0};
// When the last step ended, and how long it took; 0 before the first has.
std::atomic<int64_t> step_end_ns{0}, step_ns{0};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free,
              "a signal handler may only access lock-free atomics");

// A line for standard error, composed without allocation: it is written by a signal handler.
class Note {
 public:
  void add(const char* text) {
    while (*text != '\0' && size_ < sizeof(text_)) text_[size_++] = *text++;
  }
  void add(int64_t number) {
    char digits[20];
    size_t n = 0;
    do digits[n++] = static_cast<char>('0' + number % 10);
    while ((number /= 10) > 0 && n < sizeof(digits));
    while (n > 0 && size_ < sizeof(text_)) text_[size_++] = digits[--n];
  }
  void write() const {
    if (::write(STDERR_FILENO, text_, size_) < 0) return;  // nobody reads it
  }

 private:
  char text_[160];
  size_t size_ = 0;
};

void on_signal(int number) {
  const int saved = errno;
  int none = 0;
  if (asked.compare_exchange_strong(none, number)) {
    Note note;
    note.add("\nstopping after the step in progress");
    if (const int64_t took = step_ns.load(); took > 0) {
      const int64_t left = step_end_ns.load() + took - base::now_ns();
      note.add(", in about ");
      note.add(left > 0 ? (left + 999'999'999) / 1'000'000'000 : 1);
      note.add(" s");
    }
    note.add(number == SIGINT ? "; press again to stop immediately\n"
                              : "; a second signal stops immediately\n");
    note.write();
  } else if (number != SIGHUP) {  // a closing terminal may send several
    ::signal(number, SIG_DFL);
    ::raise(number);
  }
  errno = saved;
}

}  // namespace

void install_signal_handlers() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGHUP}) {
    struct sigaction old = {};
    // nohup ignores SIGHUP, and that stays so.
    if (number == SIGHUP && ::sigaction(number, nullptr, &old) == 0 && old.sa_handler == SIG_IGN) continue;
    ::sigaction(number, &action, nullptr);
  }
}

void note_step_end() {
  const int64_t now = base::now_ns(), before = step_end_ns.exchange(now);
  if (before != 0) step_ns.store(now - before);
}

int asked_to_stop() { return asked.load(); }

}  // namespace quintet::cli
