#include "cli/signals.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>

#include "base/clock.h"

namespace quintet::cli {
namespace {

std::atomic<int> asked{0};
std::atomic<int64_t> asked_ns{0};  // when
// Of one request: timeout(1) signals the process and then its group, and launchers pass on what a terminal
// sends as well.
constexpr int64_t kSameRequestNs = 500'000'000;
// When the last step ended, and how long it took; 0 before the first has.
std::atomic<int64_t> step_end_ns{0}, step_ns{0};
// When the step in progress began, 0 before the first has; its passes over micro-batches, finished and all.
std::atomic<int64_t> step_begin_ns{0}, passes_done{0}, passes{0};
std::atomic<int64_t> abandonable{0};
std::atomic<int64_t> save_ns{0};  // that saving the last checkpoint takes
std::atomic<bool> is_saving_last{false};
constexpr int64_t kLongStepNs = 500'000'000;  // shorter ones are finished (train/loop.cc)
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free &&
                  std::atomic<bool>::is_always_lock_free,
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
  char text_[320];
  size_t size_ = 0;
};

constexpr int64_t kSecondNs = 1'000'000'000;

int64_t seconds_of(int64_t ns) { return ns > 0 ? (ns + kSecondNs - 1) / kSecondNs : 1; }

// When the run will end, in lines of less than 80 columns: a handler cannot ask for the terminal's width.
Note note_of_stop() {
  Note note;
  const int64_t save = save_ns.load();
  if (is_saving_last) {
    note.add("\nthe run has ended; saving its last checkpoint takes about ");
    note.add(seconds_of(save));
    note.add(" s");
    return note;
  }
  const int64_t now = base::now_ns(), begin = step_begin_ns.load(), parts = abandonable.load();
  int64_t took = step_ns.load(), end = step_end_ns.load() + took;
  const bool within = begin != 0 && parts > 1 && (took == 0 || took > kLongStepNs);
  if (const int64_t done = passes_done.load(); took == 0 && done > 0) {
    took = (now - begin) / done * passes.load();  // of the step in progress
    end = begin + took;
  }
  note.add(begin == 0 ? "\nstopping before the next step"
           : within   ? "\nstopping at the next micro-batch"
                      : "\nstopping after the step in progress");
  if (took > 0) {
    int64_t left = end - now;
    if (within) left = std::min(left, 2 * took / parts);
    note.add(", in about ");
    note.add(seconds_of(left));
    note.add(" s");
  } else if (begin != 0 && !within) {
    note.add("; how long it takes is not known yet");
  }
  if (within) note.add("; this step is not counted");
  if (save >= kSecondNs) {
    note.add("\nsaving the checkpoint then takes about ");
    note.add(seconds_of(save));
    note.add(" s");
  }
  return note;
}

void on_signal(int number) {
  const int saved = errno;
  int none = 0;
  if (asked.compare_exchange_strong(none, number)) {
    asked_ns = base::now_ns();
    Note note = note_of_stop();
    note.add(number == SIGINT ? "\npress Ctrl-C again to stop immediately\n"
                              : "\na second signal stops immediately\n");
    note.write();
  } else if (number != SIGHUP &&  // a closing terminal may send several
             base::now_ns() - asked_ns > kSameRequestNs) {
    ::signal(number, SIG_DFL);
    ::raise(number);
  }
  errno = saved;
}

// Data and weights are mapped into memory, so that reading a file that has become shorter is this signal.
void on_bus_error(int number) {
  Note note;
  note.add(
      "\nquintet: a mapped file (data.path, or a checkpoint) was truncated or cannot be read any more\n");
  note.write();
  ::signal(number, SIG_DFL);
  ::raise(number);
}

}  // namespace

void install_signal_handlers() {
  ::signal(SIGBUS, on_bus_error);
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

void set_abandonable(int64_t micro_batches) { abandonable = micro_batches; }

void note_progress(int done, int all) {
  passes = all;
  passes_done = done;
  if (done == 0) step_begin_ns = base::now_ns();
}

void note_step_end() {
  const int64_t now = base::now_ns(), before = step_end_ns.exchange(now);
  const int64_t begin = before != 0 ? before : step_begin_ns.load();
  if (begin != 0) step_ns = now - begin;
}

void note_last_save(double seconds, bool begins) {
  save_ns = static_cast<int64_t>(seconds * 1e9);
  if (begins) is_saving_last = true;
}

int asked_to_stop() { return asked.load(); }

}  // namespace quintet::cli
