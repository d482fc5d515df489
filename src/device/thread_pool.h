// A fixed team of threads for data-parallel loops inside one rank.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <thread>
#include <type_traits>

namespace quintet::device {

// The thread that calls parallel_for acts as worker 0; threads - 1 others are started once. Idle workers spin
// for some tens of microseconds and then sleep, so a pool uses no CPU time between steps.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Calls fn(b, e, worker) at most once per worker; the ranges [b, e) are disjoint, ascend with the worker,
  // cover [begin, end), and each but the last has a length that is a multiple of `grain`. Which worker gets
  // which range depends only on the arguments and threads(). Returns when all calls have returned; everything
  // they wrote is visible. Rethrows an exception from fn (that of the lowest worker). Not reentrant: fn must
  // not use the same pool, and only one thread at a time may call. Does not allocate.
  template <class Fn>
  void parallel_for(int64_t begin, int64_t end, int64_t grain, Fn&& fn) {
    if (end <= begin) return;
    const int64_t blocks = (end - begin + grain - 1) / grain;
    if (threads_ == 1 || blocks == 1) {
      fn(begin, end, 0);
      return;
    }
    using Callable = std::remove_reference_t<Fn>;
    run(Job{[](const void* context, int64_t b, int64_t e, int worker) {
              (*static_cast<Callable*>(const_cast<void*>(context)))(b, e, worker);
            },
            std::addressof(fn), begin, end, grain, blocks,
            blocks < threads_ ? static_cast<int>(blocks) : threads_});
  }

 private:
  struct Job {
    void (*call)(const void* context, int64_t b, int64_t e, int worker);
    const void* context;
    int64_t begin, end, grain, blocks;
    int workers;
  };
  // On its own cache line: the caller wakes only the workers that a job needs.
  struct alignas(64) Worker {
    std::atomic<uint32_t> epoch{0};  // Incremented for each job that includes this worker.
    std::exception_ptr error;
    std::thread thread;
  };

  void run(const Job& job);
  void run_part(const Job& job, int worker);
  void work(int worker);

  const int threads_;
  std::unique_ptr<Worker[]> workers_;  // Entry 0 is the caller's: it has no thread.
  Job job_{};
  std::atomic<bool> stop_{false};
  alignas(64) std::atomic<uint32_t> pending_{0};  // Workers that have not finished the current job.
  alignas(64) std::atomic<bool> busy_{false};
};

}  // namespace quintet::device
