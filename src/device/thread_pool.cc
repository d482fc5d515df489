#include "device/thread_pool.h"

#include "base/error.h"

namespace quintet::device {
namespace {

// Between 10 and 50 us on current processors: long enough to bridge the gap between two loops of one kernel,
// short enough that pools sharing a core do not stall each other.
constexpr int kSpins = 1000;

// Returns once `value` is no longer `old`.
void wait_while(const std::atomic<uint32_t>& value, uint32_t old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    __builtin_ia32_pause();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(int threads) : threads_(threads) {
  QUINTET_CHECK(threads >= 1, "a pool of {} threads", threads);
  workers_ = std::make_unique<Worker[]>(static_cast<size_t>(threads));
  for (int w = 1; w < threads; ++w)
    workers_[static_cast<size_t>(w)].thread = std::thread([this, w] { work(w); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  for (int w = 1; w < threads_; ++w) {
    Worker& worker = workers_[static_cast<size_t>(w)];
    worker.epoch.fetch_add(1, std::memory_order_release);
    worker.epoch.notify_one();
  }
  for (int w = 1; w < threads_; ++w) workers_[static_cast<size_t>(w)].thread.join();
}

void ThreadPool::run(const Job& job) {
  QUINTET_CHECK(!busy_.exchange(true, std::memory_order_acquire),
                "parallel_for on a pool that is already running a loop");
  job_ = job;
  pending_.store(static_cast<uint32_t>(job.workers - 1), std::memory_order_relaxed);
  for (int w = 1; w < job.workers; ++w) {
    Worker& worker = workers_[static_cast<size_t>(w)];
    worker.epoch.fetch_add(1, std::memory_order_release);
    worker.epoch.notify_one();
  }
  run_part(job, 0);
  for (uint32_t left; (left = pending_.load(std::memory_order_acquire)) != 0;) wait_while(pending_, left);
  std::exception_ptr error;
  for (int w = job.workers - 1; w >= 0; --w) {
    std::exception_ptr& own = workers_[static_cast<size_t>(w)].error;
    if (own) error = own;
    own = nullptr;
  }
  busy_.store(false, std::memory_order_release);
  if (error) std::rethrow_exception(error);
}

void ThreadPool::run_part(const Job& job, int worker) {
  const int64_t first = job.blocks * worker / job.workers, last = job.blocks * (worker + 1) / job.workers;
  const int64_t b = job.begin + first * job.grain, e = job.begin + last * job.grain;
  try {
    job.call(job.context, b, e < job.end ? e : job.end, worker);
  } catch (...) {
    workers_[static_cast<size_t>(worker)].error = std::current_exception();
  }
}

void ThreadPool::work(int worker) {
  Worker& self = workers_[static_cast<size_t>(worker)];
  for (uint32_t seen = 0;; ++seen) {
    wait_while(self.epoch, seen);
    if (stop_.load(std::memory_order_relaxed)) return;
    run_part(job_, worker);
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) pending_.notify_one();
  }
}

}  // namespace quintet::device
