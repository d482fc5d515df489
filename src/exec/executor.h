// Runs expanded programs of one rank on the CPU. The calling thread carries the compute stream; every other
// stream has a thread of its own, so that communication runs beside computation where the program allows and
// a stream that waits for another rank holds nobody else up. A collective that the very next computation
// waits for runs on the calling thread: there is nothing to overlap.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "base/ids.h"
#include "comm/communicator.h"
#include "device/arena.h"
#include "exec/cpu/kernel.h"
#include "observe/trace.h"
#include "program/expand.h"

namespace quintet::exec {

struct ExecutorOptions {
  int threads = 1;  // of this rank's kernels
  // Computation and collectives on the calling thread in issue order, freed bytes overwritten with NaN: a use
  // after free shows. (Messages between pipeline stages keep their threads; their buffers are left as they
  // are.)
  bool poison = false;
};

// Fills the inputs of a micro-batch: names and addresses in the order of Program::inputs.
using LoadBatch = std::function<void(int micro, const std::vector<std::pair<std::string, int32_t*>>& inputs)>;

class Executor {
 public:
  // Allocates the arena and creates the communicators (all ranks do so together). The program must outlive
  // it.
  Executor(const program::Program& program, comm::World& world, ExecutorOptions options);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  void run(const program::Expanded& expanded, const LoadBatch& load);

  std::byte* address(program::BufferId id) const;
  double& scalar(program::Scalar s) const;
  int64_t& dropout_key() const;
  device::ThreadPool& pool() { return *pool_; }

  // The next run() is recorded; streams of `trace` are those of the program, in order.
  void trace_next(observe::RankTrace* trace, int64_t step);

  // High-water mark by what was really written. Call begin before a run and end after it, twice: each time
  // the bytes above the persistent ones are first set to a pattern (the second its complement, so that a
  // written byte cannot hide in both), and the highest changed byte is found. Also checks that nothing was
  // written beyond the plan.
  void begin_measuring(int round);
  void end_measuring(int round);
  int64_t measured_peak_bytes() const { return measured_; }

 private:
  void bind();
  void run_lane(program::StreamId stream);
  void run_issue(const program::Issue& issue);
  void run_instr(int body, int index, const program::Instr& instr, const program::Call& call);
  void run_collective(const cpu::Bound& bound);
  void wait_for(const program::Wait& wait);
  void advance(program::StreamId stream, int position);
  void communicate(program::StreamId stream);
  void fail(std::exception_ptr error);
  using Lanes = std::vector<std::vector<int>>;  // by carrying stream: issues in order
  const Lanes& lanes_of(const program::Expanded& expanded);
  void find_poison_waits(const program::Expanded& expanded);

  const program::Program& program_;
  comm::World& world_;
  const ExecutorOptions options_;
  device::Arena arena_;
  std::unique_ptr<device::ThreadPool> pool_, comm_pool_;
  std::vector<std::shared_ptr<comm::Communicator>> comms_;
  std::vector<std::vector<cpu::Bound>> bound_;                         // by body and instruction
  std::vector<std::vector<std::pair<std::string, int32_t*>>> inputs_;  // by body
  std::vector<char> in_message_;                                       // by buffer: sent or received

  // The run in progress.
  const program::Expanded* expanded_ = nullptr;
  const LoadBatch* load_ = nullptr;
  const Lanes* lanes_ = nullptr;
  std::vector<std::pair<const program::Expanded*, std::unique_ptr<Lanes>>> lane_cache_;
  // With poison, by issue: the Free of the compute stream that a message must come after; -1: none.
  std::map<const program::Expanded*, std::vector<int>> poison_waits_;
  std::unique_ptr<std::atomic<int>[]> progress_;  // by stream: instructions completed
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;
  std::atomic<int> error_taken_{0};

  // The streams' threads: woken with a run's number, each answers with it.
  std::vector<std::thread> threads_;
  std::atomic<int> run_number_{0};
  std::unique_ptr<std::atomic<int>[]> run_done_;  // by stream
  std::atomic<bool> stop_{false};

  observe::RankTrace* trace_ = nullptr;
  int64_t trace_step_ = 0;
  int64_t measured_ = 0;
};

}  // namespace quintet::exec
