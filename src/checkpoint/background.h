// One job at a time in a thread of its own, and a limit for the rate at which it writes.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace quintet::checkpoint {

class Background {
 public:
  Background();
  ~Background();  // after the job in progress
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // Only when no job is in progress and the last one's failure has been taken.
  void start(std::function<void()> job);
  // Whether no job is in progress; it may have failed.
  bool is_done() const;
  bool has_failed() const;
  // Waits for the job and throws what it threw, once.
  void wait();

 private:
  void run();

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::function<void()> job_;  // empty: none
  std::exception_ptr failure_;
  bool stop_ = false;
  std::thread thread_;  // last: it uses the others
};

// Sleeps so that no more than `bytes_per_second` are written on average since the object was made. 0: never.
class RateLimit {
 public:
  struct Clock {
    std::function<int64_t()> now_ns;
    std::function<void(double seconds)> sleep;
    static Clock real();
  };
  // `lifted` is asked before each sleep, of kMostSlept at a time: once it is true the limit does not apply.
  using Lifted = std::function<bool()>;
  explicit RateLimit(double bytes_per_second, Clock clock = Clock::real(), Lifted lifted = {});
  void written(int64_t bytes);
  double slept_seconds() const { return slept_; }

  static constexpr double kMostSlept = 0.1;  // seconds

 private:
  double rate_;
  Clock clock_;
  Lifted lifted_;
  int64_t begin_ns_, bytes_ = 0;
  double slept_ = 0;
};

}  // namespace quintet::checkpoint
