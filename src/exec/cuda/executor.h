// Runs a rank on a GPU. One host thread puts the whole expansion on the device's streams, in issue order,
// with events where the program waits; nothing inside waits for the device unless the sizes of an exchange of
// rows have to be read back. The first run of an expansion is launched kernel by kernel, the second is
// captured into a graph, which from then on is replayed; or into several, see plan.h.
//
// The parameters of a block that share a group of ranks are one buffer, and so are their gradients: each is
// gathered or reduced by one call. The messages of an exchange are one group of calls
// (comm/nccl/operation.h). Calls of different blocks are never grouped: the first would be done with the last
// only.
//
// Which algorithms products take is decided by timing, once: the choices are in a file, which the next run
// finds. Without a file to keep them in nothing is timed, so that repeated runs give the same bits.
//
// Before the launches one copy brings scalars and inputs to the device; behind them one copy brings scalars
// and sums back. Both memories are the executor's own, beside the arena.
#pragma once

#include <map>

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

  using Executor::run;
  void run(const program::Expanded& expanded, const Inputs& inputs, const Inputs* next) override;

  HostBytes read(const Range& range) const override;
  void write(const Range& range, const std::function<void(std::byte*)>& fill) override;
  void draw(const Range& range, base::DType dtype, const Draw& numbers) override;
  void draw_split(const Range& high, const Range& low, const Draw& numbers) override;
  void convert(const Range& from, base::DType from_type, const Range& to, base::DType to_type) override;
  double scalar(program::Scalar s) const override;
  void set_scalar(program::Scalar s, double value) override;
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
  // What is kept of an expansion between its runs.
  struct Prepared {
    LaunchPlan plan;
    std::vector<device::cuda::Event> events;
    device::cuda::Memory staging;
    device::cuda::Pinned host[2];  // one is read by the device while the other is filled
    struct Loaded {
      const void* source = nullptr;
      int64_t id = -1;  // -1: nothing of use
    } loaded[2];
    device::cuda::Pinned counts;  // of exchanges of rows
    int64_t runs = 0;
    device::cuda::Graph graph;
    std::vector<device::cuda::Graph> pieces;
  };
  class Timer;

  std::byte* address(program::BufferId id) const;
  std::byte* address(const Range& range) const { return address(range.buffer) + range.offset; }
  double* mirror() const { return reinterpret_cast<double*>(mirror_.data()); }
  void bind();
  void prepare_kernels();
  Prepared& prepare(const program::Expanded& expanded);
  int take_inputs(Prepared& p, const Inputs& inputs);
  void load(Prepared& p, int slot, const Inputs& inputs) const;
  void launch(const program::Expanded& expanded, Prepared& p);
  void launch_watched(const program::Expanded& expanded, Prepared& p, Timer* timer, bool replays);
  // With `replays` the pieces of the plan are launched as graphs, captured where they are new.
  void enqueue(const program::Expanded& expanded, Prepared& p, Timer* timer, bool replays);
  void enqueue_piece(const program::Expanded& expanded, Prepared& p, const LaunchPlan::Piece& piece);
  void enqueue_instr(const program::Expanded& expanded, const Prepared& p, size_t issue);
  void run_collective(const Bound& bound, const Prepared& p, const LaunchPlan::Step& step);
  void exchange_rows(const Bound& bound, comm::DeviceCommunicator& comm, const Prepared& p,
                     const LaunchPlan::Step& step);
  void wait_until_done();

  const program::Program& program_;
  comm::World& world_;
  const ExecutorOptions options_;
  const int device_;
  device::cuda::Memory memory_;
  std::byte* arena_;  // in memory_, such that the workspace is aligned as kernels want it
  std::vector<device::cuda::Stream> streams_;
  device::cuda::Pinned mirror_;  // scalars, then sums
  Progress progress_;
  Libraries libraries_;
  comm::DeviceCommunicators comms_;
  std::vector<std::vector<Bound>> bound_;  // by body and instruction
  std::vector<char> in_message_;           // by buffer
  std::map<const program::Expanded*, Prepared> prepared_;
  device::cuda::Event fork_, done_;
  std::vector<device::cuda::Event> joins_;  // by stream

  observe::RankTrace* trace_ = nullptr;
  int64_t trace_step_ = 0;
};

}  // namespace quintet::exec::cuda
