#include "checkpoint/background.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "base/error.h"

namespace quintet::checkpoint {

Background::Background() : thread_([this] { run(); }) {}

Background::~Background() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Background::start(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    QUINTET_CHECK(!job_ && !failure_, "a save is started while another one is in progress");
    job_ = std::move(job);
  }
  changed_.notify_all();
}

bool Background::is_done() const {
  const std::lock_guard lock(mutex_);
  return !job_;
}

bool Background::has_failed() const {
  const std::lock_guard lock(mutex_);
  return failure_ != nullptr;
}

void Background::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !job_; });
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void Background::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return job_ || stop_; });
    if (!job_) return;
    lock.unlock();
    std::exception_ptr failure;
    try {
      job_();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    job_ = nullptr;
    failure_ = failure;
    changed_.notify_all();
  }
}

RateLimit::Clock RateLimit::Clock::real() {
  return {.now_ns = base::now_ns, .sleep = [](double seconds) {
            std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
          }};
}

RateLimit::RateLimit(double bytes_per_second, Clock clock, Lifted lifted)
    : rate_(bytes_per_second),
      clock_(std::move(clock)),
      lifted_(std::move(lifted)),
      begin_ns_(clock_.now_ns()) {}

void RateLimit::written(int64_t bytes) {
  bytes_ += bytes;
  if (rate_ <= 0) return;
  const double due = static_cast<double>(bytes_) / rate_;
  const auto seconds_passed = [this] { return static_cast<double>(clock_.now_ns() - begin_ns_) / 1e9; };
  for (double passed = seconds_passed(); passed < due && !(lifted_ && lifted_()); passed = seconds_passed()) {
    clock_.sleep(std::min(due - passed, kMostSlept));
    slept_ += seconds_passed() - passed;
  }
}

}  // namespace quintet::checkpoint
