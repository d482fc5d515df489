// Runs expanded programs of one rank. One interface, one backend per device: cpu/ and cuda/ (cuda_missing/ in
// builds without it). Memory belongs to the backend; the host accesses it by ranges of buffers.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/file.h"
#include "base/huge_pages.h"
#include "comm/communicator.h"
#include "observe/trace.h"
#include "program/expand.h"

namespace quintet::exec {

namespace cpu {
struct Kernel;  // exec/cpu/kernel.h
}
namespace cuda {
struct Kernel;  // exec/cuda/kernel.h
}

enum class Device : uint8_t { Cpu, Cuda };

// The kernels of an op that is not built in; null if there is none.
struct OpKernels {
  const graph::OpDef* op = nullptr;
  const cpu::Kernel* cpu = nullptr;
  const cuda::Kernel* cuda = nullptr;
  int64_t (*cuda_scratch)(const program::Instr& instr) = nullptr;
};

struct ExecutorOptions {
  Device device = Device::Cpu;
  int threads = 1;  // Cpu: of this rank's kernels
  // Computation and collectives run in issue order, freed bytes are overwritten with NaN to expose uses after
  // free. (Messages between pipeline stages still run concurrently; their buffers are left alone.)
  bool poison = false;
  int device_index = 0;   // Cuda: which of the machine's devices, modulo their number
  bool capture = true;    // Cuda: runs are captured and replayed as graphs; false: launched one by one
  bool tune = true;       // Cuda: GEMMs are timed once per problem, before the first run, given `tuned`
  base::Path tuned = {};  // Cuda: file of tuned algorithms, kept between runs; empty: none
  bool tf32 = false;      // Cuda: GEMMs of f32 round their operands to 10 bits of mantissa
  // Called once per expansion that cannot be captured, with the reason.
  std::function<void(const std::string&)> log = {};
  std::vector<OpKernels> kernels = {};  // in addition to the built-in ones
};

// An input of a micro-batch, for the host to fill.
struct InputRows {
  graph::InputSpec spec;
  int32_t* data = nullptr;
};
// Fills the inputs of a micro-batch, which come in the order of Program::inputs.
using LoadBatch = std::function<void(int micro, const std::vector<InputRows>& inputs)>;

// The inputs of a run. Inputs of one source with the same non-negative id are equal.
struct Inputs {
  LoadBatch load;
  const void* source = nullptr;
  int64_t id = -1;
};

// Bytes of a buffer.
struct Range {
  program::BufferId buffer;
  int64_t offset = 0, bytes = 0;
};

// The contents of a range, for the host to read: the memory itself, or a copy of it. Valid until the next run
// or write.
class HostBytes {
 public:
  explicit HostBytes(const std::byte* memory) : data_(memory) {}
  explicit HostBytes(std::unique_ptr<std::byte[]> copy) : copy_(std::move(copy)), data_(copy_.get()) {}
  const std::byte* data() const { return data_; }

 private:
  std::unique_ptr<std::byte[]> copy_;
  const std::byte* data_;
};

// Numbers drawn into a range that holds elements [first, first + n) of a box: element i of the box is element
// `begin` + i of the whole, dim by dim. Each is 0 or 1 or stddev x base::normal(key, its index in the whole);
// elements outside the whole are padding and become 0.
struct Draw {
  enum class Kind : uint8_t { Zeros, Ones, Normal };
  Kind kind = Kind::Zeros;
  double stddev = 1;
  uint64_t key = 0;
  std::span<const int64_t> box, whole, begin;  // sizes and starts by dim
  int64_t first = 0;
};
inline constexpr size_t kMaxDrawDims = 8;

class Executor {
 public:
  virtual ~Executor() = default;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Starts a run. If the device works asynchronously, the inputs of the next run of this expansion are loaded
  // meanwhile if `next` is given and has an id; that run then does not call its load.
  virtual void start(const program::Expanded& expanded, const Inputs& inputs, const Inputs* next) = 0;
  // Returns when the oldest started run is complete; scalars and sums are then its own until the next start.
  virtual void finish() = 0;
  // Whether a second run may be started before the first is finished, so that the device never waits for the
  // host. The scalars that the host sets belong to the run that is started next.
  virtual bool runs_ahead() const { return false; }
  void run(const program::Expanded& expanded, const LoadBatch& load) {
    start(expanded, Inputs{.load = load}, nullptr);
    finish();
  }

  // The host's access to memory, between runs: none may be in progress.
  virtual HostBytes read(const Range& range) const = 0;
  // Host memory that the executor owns, for copies of a state that is saved; page-locked where the device
  // copies faster for it. One block: a second call frees the first.
  virtual std::span<std::byte> staging(int64_t bytes);
  // Copies ranges of the states that are saved into it, each to its own place. Where the device copies by
  // itself, that overlaps the next run, which waits for it before it changes any of them; wait_staged()
  // returns, in any thread, when all have arrived.
  struct Staged {
    Range from;
    int64_t to = 0;  // in staging()
  };
  virtual void stage(std::span<const Staged> copies);
  virtual void wait_staged() {}
  virtual bool stages_by_itself() const { return false; }  // false: they have arrived when stage() returns
  // `fill` must write all of the bytes that it gets: their old contents are unknown. Several threads may
  // write ranges that do not overlap.
  virtual void write(const Range& range, const std::function<void(std::byte*)>& fill) = 0;
  virtual void draw(const Range& range, base::DType dtype, const Draw& numbers) = 0;
  // The same numbers in f32, each split (base/split_float.h) into a bf16 of `high` and an i16 of `low`.
  virtual void draw_split(const Range& high, const Range& low, const Draw& numbers) = 0;
  // to[i] := from[i] rounded to nearest even; floating types. The ranges do not overlap.
  virtual void convert(const Range& from, base::DType from_type, const Range& to, base::DType to_type) = 0;

  virtual double scalar(std::string_view name) const = 0;
  virtual void set_scalar(std::string_view name, double value) = 0;  // an input
  virtual void set_dropout_key(int64_t key) = 0;
  // The buffer Program::sums after a run; empty when there is none.
  virtual std::span<const double> sums() const = 0;

  // Lets the next run be abandoned between two micro-batches: `stop` is called there, on every rank the same
  // number of times, and must give all ranks the same answer. What lasts from run to run is written at the
  // end of a step only, so an abandoned one leaves no trace. Backends that queue whole runs never ask.
  virtual void abandon_next(std::function<bool()> /*stop*/) {}  // NOLINT(performance-unnecessary-value-param)
  // Whether the run that finished last was.
  virtual bool was_abandoned() const { return false; }

  // Calls `report` in the next run when a pass over a micro-batch begins, with the number of those before
  // it and of all. Backends that queue whole runs never call it.
  using Report = std::function<void(int done, int all)>;
  virtual void follow_next(Report /*report*/) {}  // NOLINT(performance-unnecessary-value-param)

  // Shows every later run's results to the host, instruction by instruction: `out` as it is afterwards, and
  // `before` what an instruction that adds to its results found there (otherwise empty). Called by several
  // threads at once; slow. False: the backend cannot.
  using Observer =
      std::function<void(const program::Instr&, const program::Call&, std::span<std::byte* const> out,
                         std::span<const std::vector<std::byte>> before)>;
  virtual bool observe(Observer /*observer*/) {
    return false;
  }  // NOLINT(performance-unnecessary-value-param)

  // By communicator of the program: this rank's calls so far. Empty: the backend does not count them.
  virtual std::vector<std::vector<comm::CallTotals>> traffic() const { return {}; }

  // Records the next run; streams of `trace` are those of the program, in order.
  virtual void trace_next(observe::RankTrace* trace, int64_t step) = 0;

  // High-water mark of the bytes actually written. Call begin before a run and end after it, twice: each time
  // the bytes above the persistent ones are first set to a pattern (the second its complement, so that a
  // written byte cannot match both), and the highest changed byte is found. Also checks that nothing was
  // written past the plan.
  virtual void begin_measuring(int round) = 0;
  virtual void end_measuring(int round) = 0;
  int64_t measured_peak_bytes() const { return measured_; }

  // For measurements, after the last run that matters: results are overwritten. Seconds of an instruction of
  // the program that runs alone, repeated for about `seconds`; and bytes read and written per second by
  // copies within the device's memory. 0: not supported by the backend.
  virtual double time_alone(const program::Issue&, double /*seconds*/) { return 0; }
  virtual double copy_bytes_per_s(double /*seconds*/) { return 0; }

  // "CPU, 8 threads", "NVIDIA H200"; and the bytes allocated on the device outside the arena.
  virtual std::string device_name() const = 0;
  virtual int64_t extra_bytes() const { return 0; }

 protected:
  Executor() = default;
  // Records that bytes up to `top` of the arena were changed.
  void note_touched(const program::Program& program, int64_t top);

 private:
  int64_t measured_ = 0;
  std::vector<std::byte, base::HugePages<std::byte>> staging_;
};

inline constexpr int64_t kGuardBytes = 4096;  // after the planned arena: must stay untouched
inline constexpr unsigned char kMeasurePatterns[2] = {0xA5, 0x5A};

// Allocates the arena, zeroed, and creates the communicators (all ranks do so together). The program must
// outlive it.
std::unique_ptr<Executor> make_executor(const program::Program& program, comm::World& world,
                                        const ExecutorOptions& options);

// Scratch that an instruction needs, for the compiler's plan. Needs neither a device nor a build with its
// backend. `threads`: of kernels on Cpu.
std::function<int64_t(const program::Instr&)> workspace_of(Device device, int threads,
                                                           std::vector<OpKernels> kernels = {});

// A remark for the user about an instruction before it runs, with the recipe key that helps: that its kernel
// is far slower than the device. Empty for nearly all.
std::string remark_on(Device device, const program::Instr& instr);

// Why this process cannot run programs on a device, as a clause, and what would change that.
struct Missing {
  std::string why, remedy;
};
// Empty if it can.
std::optional<Missing> missing(Device device);

// UserError with what is missing and what to do, unless this process can run programs on the device.
void require_device(Device device);

// Free memory that several ranks share: all ranks of a machine, or those of a GPU. Bytes 0: unknown.
struct SharedMemory {
  int64_t bytes = 0, ranks = 1;
};
// Memory of the rank on device `index`, with `ranks_here` ranks on this machine.
SharedMemory shared_memory(Device device, int64_t index, int64_t ranks_here);

}  // namespace quintet::exec
