// Runs a rank on a GPU. One host thread enqueues the whole expansion on the device's streams, in issue order,
// with events where the program waits; it never waits for the device unless the sizes of a row exchange have
// to be read back. The first run of an expansion is launched kernel by kernel, the second is captured into a
// graph, which is replayed from then on; or into several, see plan.h.
//
// The parameters of a block that share a group of ranks are one buffer, and so are their gradients: each is
// gathered or reduced by one call. The messages of an exchange are one group of calls
// (comm/nccl/operation.h). Calls of different blocks are never grouped: the first would complete only with
// the last.
//
// GEMM algorithms are chosen by timing, once: the choices are stored in a file, which the next run reads.
// Without such a file nothing is timed, so that repeated runs give the same bits.
//
// Before the launches one copy transfers scalars and inputs to the device; after them one copy transfers
// scalars and sums back. Both buffers are the executor's own, outside the arena, and there are two of each:
// the host fills and reads those of one run while the device uses those of another.
#pragma once

#include <map>
#include <mutex>

#include "comm/device_communicator.h"
#include "device/cuda/device.h"
#include "exec/cuda/kernel.h"
#include "exec/cuda/libraries.h"
#include "exec/cuda/plan.h"
#include "exec/cuda/progress.h"
#include "exec/executor.h"

namespace quintet::exec::cuda {

class CudaExecutor : public Executor {
 public:
  CudaExecutor(const program::Program& program, comm::World& world, const ExecutorOptions& options);
  ~CudaExecutor() override;

  void start(const program::Expanded& expanded, const Inputs& inputs, const Inputs* next) override;
  void finish() override;
  bool runs_ahead() const override { return true; }

  HostBytes read(const Range& range) const override;
  std::span<std::byte> staging(int64_t bytes) override;
  void stage(std::span<const Staged> copies) override;
  void wait_staged() override;
  bool stages_by_itself() const override { return true; }
  void write(const Range& range, const std::function<void(std::byte*)>& fill) override;
  void draw(const Range& range, base::DType dtype, const Draw& numbers) override;
  void draw_split(const Range& high, const Range& low, const Draw& numbers) override;
  void convert(const Range& from, base::DType from_type, const Range& to, base::DType to_type) override;
  double scalar(std::string_view name) const override;
  void set_scalar(std::string_view name, double value) override;
  void set_dropout_key(int64_t key) override;
  std::span<const double> sums() const override;
  void trace_next(observe::RankTrace* trace, int64_t step) override;
  void begin_measuring(int round) override;
  void end_measuring(int round) override;
  double time_alone(const program::Issue& issue, double seconds) override;  // time_alone.cc
  double copy_bytes_per_s(double seconds) override;
  std::string device_name() const override;
  int64_t extra_bytes() const override;

 private:
  // State of an expansion that is kept between its runs.
  struct Prepared {
    LaunchPlan plan;
    std::vector<device::cuda::Event> events;
    device::cuda::Memory staging;
    struct Slot {
      device::cuda::Pinned host;
      device::cuda::Event copied;  // the device has read it
      int64_t run = -1;            // the last run that used it
      const void* source = nullptr;
      int64_t id = -1;  // -1: none
    } slots[2];
    int slot = 0;                 // of the last started run
    device::cuda::Pinned counts;  // of row exchanges
    int64_t runs = 0;
    device::cuda::Graph graph;
    std::vector<device::cuda::Graph> pieces;
    bool capture_failed = false;  // every run is launched kernel by kernel
  };
  class Timer;

  std::byte* address(program::BufferId id) const;
  std::byte* address(const Range& range) const { return address(range.buffer) + range.offset; }
  // Scalars, then sums, of a run.
  struct Readback {
    device::cuda::Pinned values;
    device::cuda::Event done;
    const program::Expanded* expanded = nullptr;
  };
  Readback& readback(int64_t run) { return readbacks_[run % 2]; }
  const double* finished() const {
    return reinterpret_cast<const double*>(readbacks_[(finished_ + 1) % 2].values.data());
  }
  void bind();
  void prepare_kernels();
  Prepared& prepare(const program::Expanded& expanded);
  int take_inputs(Prepared& p, const Inputs& inputs);
  void load(Prepared& p, int slot, const Inputs& inputs) const;
  void launch(const program::Expanded& expanded, Prepared& p);
  void log_not_captured(const Prepared& p) const;
  void launch_watched(const program::Expanded& expanded, Prepared& p, Timer* timer, bool replays);
  // With `replays` the pieces of the plan are launched as graphs, captured on first use.
  void enqueue(const program::Expanded& expanded, Prepared& p, Timer* timer, bool replays);
  void enqueue_piece(const program::Expanded& expanded, Prepared& p, const LaunchPlan::Piece& piece);
  void enqueue_instr(const program::Expanded& expanded, const Prepared& p, size_t issue);
  // The further passes over experts that are being enqueued (program::InstrKind::Repeat).
  struct Passes {
    size_t begin = 0;  // issue
    int32_t count = 1, now = 0;
    uint32_t* current = nullptr;  // `now` on the device
    const device::cuda::Stream* stream = nullptr;
  };
  // Waits for the device if the number of passes is not known yet.
  Passes begin_passes(const program::Expanded& expanded, const Prepared& p, size_t issue);
  static bool next_pass(Passes& passes);
  void run_collective(const Bound& bound, const Prepared& p, const LaunchPlan::Step& step);
  void exchange_rows(const Bound& bound, comm::DeviceCommunicator& comm, const Prepared& p,
                     const LaunchPlan::Step& step);
  void wait_for(const device::cuda::Event& event);
  // Notifies peers, which may be waiting for this rank in a collective, and rethrows the exception.
  [[noreturn]] void give_up();

  const program::Program& program_;
  comm::World& world_;
  const ExecutorOptions options_;
  const int device_;
  device::cuda::Memory memory_;
  std::byte* arena_;  // in memory_, such that the workspace is aligned for kernels
  std::vector<device::cuda::Stream> streams_;
  device::cuda::Pinned staging_;  // see staging()
  device::cuda::Stream copies_;   // into staging_
  device::cuda::Event staged_;    // they have arrived
  // Page-locked memory that large parts of a load pass through (write), one block for each thread that
  // writes.
  std::mutex written_mutex_;
  std::vector<device::cuda::Pinned> written_;  // not in use
  Readback readbacks_[2];
  int64_t started_ = 0, finished_ = 0;  // runs
  std::vector<double> host_scalars_;    // inputs of the next run
  Progress progress_;
  Libraries libraries_;
  comm::DeviceCommunicators comms_;
  std::vector<std::vector<Bound>> bound_;  // by body and instruction
  std::vector<char> in_message_;           // by buffer
  std::map<const program::Expanded*, Prepared> prepared_;
  device::cuda::Event fork_, counted_;
  std::vector<device::cuda::Event> joins_;  // by stream

  observe::RankTrace* trace_ = nullptr;
  int64_t trace_step_ = 0;
};

}  // namespace quintet::exec::cuda
