#include "exec/executor.h"

#include <cstring>
#include <limits>

#include "base/clock.h"
#include "base/error.h"

namespace quintet::exec {

using program::CollectiveKind;
using program::Expanded;
using program::Instr;
using program::InstrKind;
using program::Issue;
using program::kComputeStream;
using program::StreamId;

namespace {

constexpr int64_t kGuardBytes = 4096;  // beyond the plan: must stay untouched
constexpr unsigned char kPattern[2] = {0xA5, 0x5A};

comm::ReduceOp op_of(graph::Reduction r) {
  return r == graph::Reduction::Sum ? comm::ReduceOp::Sum : comm::ReduceOp::Max;
}

}  // namespace

Executor::Executor(const program::Program& program, comm::World& world, ExecutorOptions options)
    : program_(program),
      world_(world),
      options_(options),
      arena_(base::Bytes(program.arena_bytes + kGuardBytes)),
      pool_(std::make_unique<device::ThreadPool>(options.threads)),
      comm_pool_(std::make_unique<device::ThreadPool>(1)),
      progress_(std::make_unique<std::atomic<int>[]>(program.streams.size())) {
  for (const program::Communicator& c : program.comms) comms_.push_back(world.create(c.members, c.name));
  bind();
  if (!options.poison && program.streams.size() > 1) comm_thread_ = std::thread([this] { communicate(); });
}

Executor::~Executor() {
  if (!comm_thread_.joinable()) return;
  stop_ = true;
  ++run_number_;
  run_number_.notify_all();
  comm_thread_.join();
}

void Executor::bind() {
  const auto address_of = [&](const program::Operand& o) { return address(o.buffer) + o.offset_bytes; };
  for (const program::Body& body : program_.bodies) {
    std::vector<cpu::Bound>& list = bound_.emplace_back();
    for (const Instr& instr : body.instrs) {
      cpu::Bound b{.instr = &instr,
                   .in = {},
                   .out = {},
                   .workspace = address(program_.workspace),
                   .pool = instr.stream == kComputeStream ? pool_.get() : comm_pool_.get()};
      for (const program::Operand& o : instr.in) b.in.push_back(address_of(o));
      for (const program::Operand& o : instr.out) b.out.push_back(address_of(o));
      if (instr.kind == InstrKind::Compute)
        cpu::find_kernel(*instr.op);  // a missing kernel shows now, not in step 30
      list.push_back(std::move(b));
    }
  }
  for (const auto& [name, buffer] : program_.inputs)
    inputs_.emplace_back(name, reinterpret_cast<int32_t*>(address(buffer)));
}

std::byte* Executor::address(program::BufferId id) const {
  return arena_.data() + program_.buffer(id).offset;
}

double& Executor::scalar(program::Scalar s) const {
  return *reinterpret_cast<double*>(address(program_.scalars) + program::scalar_offset(s));
}

int64_t& Executor::dropout_key() const {
  return *reinterpret_cast<int64_t*>(address(program_.scalars) +
                                     program::scalar_offset(program::Scalar::DropoutKey));
}

// Which issues the calling thread carries: the compute stream, and collectives whose result the next issue of
// the compute stream waits for.
const std::vector<char>& Executor::lanes_of(const Expanded& expanded) {
  for (const auto& [key, lanes] : lane_cache_)
    if (key == &expanded) return lanes;
  std::vector<char> on_compute(expanded.issues.size(), 1);
  std::vector<int> awaited(program_.streams.size(), -1);  // by the next issue of the compute stream
  for (size_t i = expanded.issues.size(); i-- > 0;) {
    const Issue& issue = expanded.issues[i];
    const Instr& instr = instr_of(program_, issue);
    if (instr.stream == kComputeStream) {
      if (instr.kind == InstrKind::Free) continue;
      std::fill(awaited.begin(), awaited.end(), -1);
      for (int w = 0; w < issue.num_waits; ++w) {
        const program::Wait& wait = expanded.waits[static_cast<size_t>(issue.first_wait + w)];
        awaited[wait.stream.index()] = wait.position;
      }
    } else {
      on_compute[i] = options_.poison || awaited[instr.stream.index()] >= issue.position;
    }
  }
  return lane_cache_.emplace_back(&expanded, std::move(on_compute)).second;
}

void Executor::run(const Expanded& expanded, const LoadBatch& load) {
  QUINTET_CHECK(expanded.num_streams == static_cast<int>(program_.streams.size()),
                "an expansion of another program");
  expanded_ = &expanded;
  load_ = &load;
  inline_ = &lanes_of(expanded);
  for (size_t s = 0; s < program_.streams.size(); ++s) progress_[s].store(0, std::memory_order_relaxed);
  if (comm_thread_.joinable()) {
    ++run_number_;
    run_number_.notify_all();
  }
  try {
    run_lane(true);
  } catch (...) {
    fail(std::current_exception());
  }
  if (comm_thread_.joinable())
    for (int done = run_done_; done != run_number_; done = run_done_) run_done_.wait(done);
  trace_ = nullptr;
  if (failed_) std::rethrow_exception(error_);
}

void Executor::communicate() {
  for (int seen = 0;;) {
    run_number_.wait(seen);
    seen = run_number_;
    if (stop_) return;
    try {
      run_lane(false);
    } catch (...) {
      fail(std::current_exception());
    }
    run_done_ = seen;
    run_done_.notify_all();
  }
}

void Executor::run_lane(bool compute_lane) {
  for (size_t i = 0; i < expanded_->issues.size(); ++i) {
    if (((*inline_)[i] != 0) != compute_lane) continue;
    if (failed_.load(std::memory_order_relaxed)) return;
    run_issue(expanded_->issues[i]);
  }
}

void Executor::run_issue(const Issue& issue) {
  const Instr& instr = instr_of(program_, issue);
  // Streams run in order even when their instructions are carried by two threads.
  if (instr.stream != kComputeStream && issue.position > 0) wait_for({instr.stream, issue.position - 1});
  for (int w = 0; w < issue.num_waits; ++w)
    wait_for(expanded_->waits[static_cast<size_t>(issue.first_wait + w)]);
  if (failed_.load(std::memory_order_relaxed)) return;

  const program::Call& call = expanded_->calls[static_cast<size_t>(issue.call)];
  if (trace_ != nullptr && instr.kind != InstrKind::Free) {
    const int64_t start = base::now_ns();
    run_instr(issue.body, issue.instr, instr, call);
    int64_t bytes = 0;
    for (const program::Operand& o : instr.out) bytes += o.bytes();
    const bool collective = instr.kind == InstrKind::Collective;
    trace_->add(
        instr.stream.value,
        collective ? program::to_string(instr.collective.kind)
        : instr.op ? instr.op->name
                   : std::string_view("load_batch"),
        collective ? "communication" : "compute", start, base::now_ns() - start,
        {{"bytes", bytes}, {"block", instr.block}, {"micro_batch", call.micro}, {"step", trace_step_}});
  } else {
    run_instr(issue.body, issue.instr, instr, call);
  }
  advance(instr.stream, issue.position);
}

void Executor::run_instr(int body, int index, const Instr& instr, const program::Call& call) {
  const cpu::Bound& b = bound_[static_cast<size_t>(body)][static_cast<size_t>(index)];
  switch (instr.kind) {
    case InstrKind::Compute:
      cpu::find_kernel(*instr.op).run(b, accumulates(instr, call));
      break;
    case InstrKind::Collective:
      run_collective(b);
      break;
    case InstrKind::LoadBatch:
      (*load_)(call.micro, inputs_);
      break;
    case InstrKind::Free:
      if (options_.poison) {
        const program::Buffer& buffer = program_.buffer(instr.frees);
        std::memset(address(instr.frees), 0xFF, static_cast<size_t>(buffer.bytes));
      }
      break;
  }
}

void Executor::run_collective(const cpu::Bound& b) {
  const program::Collective& c = b.instr->collective;
  comm::Communicator& comm = *comms_[c.comm.index()];
  switch (c.kind) {
    case CollectiveKind::AllReduce:
      comm.all_reduce(b.out[0], c.count, c.dtype, op_of(c.reduction));
      break;
    case CollectiveKind::AllGather:
      comm.all_gather(b.in[0], b.out[0], c.count, c.dtype);
      break;
    case CollectiveKind::ReduceScatter:
      comm.reduce_scatter(b.in[0], b.out[0], c.count, c.dtype, op_of(c.reduction));
      break;
    case CollectiveKind::AllToAll:
      comm.all_to_all(b.in[0], b.out[0], c.count, c.dtype);
      break;
  }
}

void Executor::wait_for(const program::Wait& wait) {
  std::atomic<int>& progress = progress_[wait.stream.index()];
  for (int done = progress.load(std::memory_order_acquire); done <= wait.position;
       done = progress.load(std::memory_order_acquire))
    progress.wait(done, std::memory_order_acquire);
}

void Executor::advance(StreamId stream, int position) {
  std::atomic<int>& progress = progress_[stream.index()];
  int done = progress.load(std::memory_order_relaxed);
  // A failure has set the counter to its maximum; it must not fall back.
  while (done <= position && !progress.compare_exchange_weak(done, position + 1, std::memory_order_release)) {
  }
  progress.notify_all();
}

void Executor::fail(std::exception_ptr error) {
  if (error_taken_.exchange(1) == 0) {
    error_ = std::move(error);
    failed_ = true;
    for (size_t s = 0; s < program_.streams.size(); ++s) {
      progress_[s] = std::numeric_limits<int>::max();
      progress_[s].notify_all();
    }
    // Peers may be waiting for us in a collective, and our own other thread for them.
    world_.abort("a rank failed during a step");
  }
}

void Executor::trace_next(observe::RankTrace* trace, int64_t step) {
  trace_ = trace;
  trace_step_ = step;
}

void Executor::begin_measuring(int round) {
  std::memset(arena_.data() + program_.persistent_bytes, kPattern[round],
              static_cast<size_t>(program_.arena_bytes + kGuardBytes - program_.persistent_bytes));
}

void Executor::end_measuring(int round) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(arena_.data());
  int64_t top = program_.arena_bytes + kGuardBytes;
  while (top > program_.persistent_bytes && bytes[top - 1] == kPattern[round]) --top;
  QUINTET_CHECK(top <= program_.arena_bytes,
                "rank {}: a kernel wrote {} bytes beyond the planned arena of {} bytes", program_.rank,
                top - program_.arena_bytes, program_.arena_bytes);
  measured_ = std::max(measured_, top);
}

}  // namespace quintet::exec
