// Runs a rank on the CPU. The calling thread executes the compute stream; every other stream has its own
// thread, so that communication overlaps computation where the program allows and a stream that waits for
// another rank delays no other stream. A collective that the very next computation waits for runs on the
// calling thread: there is nothing to overlap.
#pragma once

#include <atomic>
#include <limits>
#include <map>
#include <thread>

#include "device/arena.h"
#include "exec/cpu/kernel.h"
#include "exec/executor.h"

namespace quintet::exec::cpu {

class CpuExecutor : public Executor {
 public:
  CpuExecutor(const program::Program& program, comm::World& world, const ExecutorOptions& options);
  ~CpuExecutor() override;

  using Executor::run;
  void start(const program::Expanded& expanded, const Inputs& inputs, const Inputs* next) override;
  void finish() override {}

  HostBytes read(const Range& range) const override;
  void write(const Range& range, const std::function<void(std::byte*)>& fill) override;
  void draw(const Range& range, base::DType dtype, const Draw& numbers) override;
  void draw_split(const Range& high, const Range& low, const Draw& numbers) override;
  void convert(const Range& from, base::DType from_type, const Range& to, base::DType to_type) override;
  double scalar(std::string_view name) const override { return slot(name); }
  void set_scalar(std::string_view name, double value) override { slot(name) = value; }
  void set_dropout_key(int64_t key) override;
  std::span<const double> sums() const override;
  void abandon_next(std::function<bool()> stop) override { stop_asked_ = std::move(stop); }
  void follow_next(Report report) override { report_ = std::move(report); }
  bool observe(Observer observer) override {
    observer_ = std::move(observer);
    return true;
  }
  std::vector<std::vector<comm::CallTotals>> traffic() const override;
  bool was_abandoned() const override { return abandoned_at_ < kNever; }
  void trace_next(observe::RankTrace* trace, int64_t step) override;
  void begin_measuring(int round) override;
  void end_measuring(int round) override;
  std::string device_name() const override;

 private:
  std::byte* address(program::BufferId id) const;
  double& slot(std::string_view scalar) const;
  void bind();
  void run_lane(program::StreamId stream);
  // The further passes that a lane is in (program::InstrKind::Repeat).
  struct Passes {
    size_t begin = 0;  // where in the lane
    int32_t count = 1;
    int32_t* now = nullptr;
    bool done() const { return now == nullptr || *now >= count; }
    bool next() const { return now != nullptr && ++*now < count; }
  };
  void wait_before(const program::Issue& issue);
  void run_issue(const program::Issue& issue);
  void run_instr(int body, int index, const program::Instr& instr, const program::Call& call);
  void run_observed(int body, int index, const program::Instr& instr, const program::Call& call);
  void run_collective(const Bound& bound);
  void begin_asking();
  void ask_before(int call);
  bool may_enter(int call);
  void wait_for(const program::Wait& wait);
  void advance(program::StreamId stream, int position);
  void communicate(program::StreamId stream);
  void fail(std::exception_ptr error);
  using Lanes = std::vector<std::vector<int>>;  // by executing stream: issues in order
  const Lanes& lanes_of(const program::Expanded& expanded);

  const program::Program& program_;
  comm::World& world_;
  const ExecutorOptions options_;
  device::Arena arena_;
  std::unique_ptr<device::ThreadPool> pool_, comm_pool_;
  std::vector<std::shared_ptr<comm::Communicator>> comms_;
  std::vector<std::vector<Bound>> bound_;       // by body and instruction
  std::vector<std::vector<InputRows>> inputs_;  // by body
  std::vector<char> in_message_;                // by buffer: sent or received

  // The run in progress.
  const program::Expanded* expanded_ = nullptr;
  const LoadBatch* load_ = nullptr;
  const Lanes* lanes_ = nullptr;
  std::vector<std::pair<const program::Expanded*, std::unique_ptr<Lanes>>> lane_cache_;
  // With poison: see frees_before_messages.
  std::map<const program::Expanded*, std::vector<int>> poison_waits_;
  std::unique_ptr<std::atomic<int>[]> progress_;  // by stream: instructions completed
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;
  std::atomic<int> error_taken_{0};

  Observer observer_;
  Report report_;     // follow_next
  int reported_ = 0;  // the last call that it was called with

  // Abandoning the run (abandon_next). The compute stream asks where a micro-batch begins; the other streams
  // may be as far as the first call of that micro-batch, so a run that stops does so after this call.
  static constexpr int kNever = std::numeric_limits<int>::max();
  std::function<bool()> stop_asked_;
  int next_question_ = kNever;             // the call before which the compute stream asks
  std::atomic<int> open_until_{kNever};    // calls that all streams may enter, inclusive
  std::atomic<int> abandoned_at_{kNever};  // the first call that is not run

  // The streams' threads: woken with a run's number, which each stores when it is done.
  std::vector<std::thread> threads_;
  std::atomic<int> run_number_{0};
  std::unique_ptr<std::atomic<int>[]> run_done_;  // by stream
  std::atomic<bool> stop_{false};

  observe::RankTrace* trace_ = nullptr;
  int64_t trace_step_ = 0;
};

}  // namespace quintet::exec::cpu
