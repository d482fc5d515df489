#include "exec/executor.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/clock.h"
#include "base/error.h"
#include "exec/exchange_rows.h"

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

// Messages, and sums of gradients that two stages share: the partner may be far from ready, and may wait for
// this rank's computing to become so. They are never carried by the computing thread.
bool needs_own_thread(const program::Program& p, const Instr& instr) {
  const CollectiveKind kind = instr.collective.kind;
  const bool message = kind == CollectiveKind::Send || kind == CollectiveKind::Recv;
  return joins_stages(p, instr) || (instr.kind == InstrKind::Collective && message);
}

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
      progress_(std::make_unique<std::atomic<int>[]>(program.streams.size())),
      run_done_(std::make_unique<std::atomic<int>[]>(program.streams.size())) {
  scalar(program::Scalar::One) = 1;
  for (const program::Communicator& c : program.comms) comms_.push_back(world.create(c.members, c.name));
  bind();
  for (size_t t = 1; t < program.streams.size(); ++t)
    threads_.emplace_back([this, t] { communicate(StreamId(static_cast<int32_t>(t))); });
}

Executor::~Executor() {
  stop_ = true;
  ++run_number_;
  run_number_.notify_all();
  for (std::thread& t : threads_) t.join();
}

void Executor::bind() {
  const auto address_of = [&](const program::Operand& o) { return address(o.buffer) + o.offset_bytes; };
  in_message_.assign(program_.buffers.size(), 0);
  for (const program::Body& body : program_.bodies) {
    std::vector<cpu::Bound>& list = bound_.emplace_back();
    inputs_.emplace_back();
    for (const Instr& instr : body.instrs) {
      cpu::Bound b;
      b.instr = &instr;
      b.workspace = address(program_.workspace);
      b.pool = instr.stream == kComputeStream ? pool_.get() : comm_pool_.get();
      for (const program::Operand& o : instr.in) b.in.push_back(address_of(o));
      for (const program::Operand& o : instr.out) b.out.push_back(address_of(o));
      if (instr.kind == InstrKind::Compute)
        cpu::find_kernel(*instr.op);  // a missing kernel shows now, not in step 30
      if (instr.kind == InstrKind::LoadBatch)
        for (size_t i = 0; i < instr.out.size(); ++i) {
          const std::string& name = program_.buffer(instr.out[i].buffer).name;  // "ids", or "ids@2" in slot 2
          inputs_.back().emplace_back(name.substr(0, name.find('@')), reinterpret_cast<int32_t*>(b.out[i]));
        }
      if (needs_own_thread(program_, instr))
        for (const auto* operands : {&instr.in, &instr.out})
          for (const program::Operand& o : *operands) in_message_[o.buffer.index()] = 1;
      list.push_back(std::move(b));
    }
  }
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

// Which thread carries an issue: that of its stream, but the calling thread for collectives whose result the
// next issue of the compute stream waits for. What needs a thread of its own stays on its stream.
const Executor::Lanes& Executor::lanes_of(const Expanded& expanded) {
  for (const auto& [key, lanes] : lane_cache_)
    if (key == &expanded) return *lanes;
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
      on_compute[i] = !needs_own_thread(program_, instr) &&
                      (options_.poison || awaited[instr.stream.index()] >= issue.position);
    }
  }
  auto lanes = std::make_unique<Lanes>(program_.streams.size());
  if (options_.poison) find_poison_waits(expanded);
  for (size_t i = 0; i < expanded.issues.size(); ++i) {
    const StreamId stream = instr_of(program_, expanded.issues[i]).stream;
    (*lanes)[on_compute[i] ? 0 : stream.index()].push_back(static_cast<int>(i));
  }
  return *lane_cache_.emplace_back(&expanded, std::move(lanes)).second;
}

// A message need not wait for a Free: nothing happens there, unless it poisons. Then what arrives in bytes
// that were freed before must not be overwritten.
void Executor::find_poison_waits(const Expanded& expanded) {
  struct Freed {
    int64_t begin, end;
    int position;
  };
  std::map<program::BufferId, Freed> freed;  // the last time of each buffer
  std::vector<int>& waits = poison_waits_[&expanded];
  waits.assign(expanded.issues.size(), -1);
  for (size_t i = 0; i < expanded.issues.size(); ++i) {
    const Instr& instr = instr_of(program_, expanded.issues[i]);
    if (instr.kind == InstrKind::Free && !in_message_[instr.frees.index()]) {
      const program::Buffer& b = program_.buffer(instr.frees);
      freed[instr.frees] = {b.offset, b.offset + b.bytes, expanded.issues[i].position};
    }
    if (!needs_own_thread(program_, instr)) continue;
    for (const program::Operand& o : instr.out) {
      const int64_t begin = program_.buffer(o.buffer).offset + o.offset_bytes, end = begin + o.bytes();
      for (const auto& [id, f] : freed)
        if (f.begin < end && begin < f.end) waits[i] = std::max(waits[i], f.position);
    }
  }
}

void Executor::run(const Expanded& expanded, const LoadBatch& load) {
  QUINTET_CHECK(expanded.num_streams == static_cast<int>(program_.streams.size()),
                "an expansion of another program");
  expanded_ = &expanded;
  load_ = &load;
  lanes_ = &lanes_of(expanded);
  for (size_t s = 0; s < program_.streams.size(); ++s) progress_[s].store(0, std::memory_order_relaxed);
  ++run_number_;
  run_number_.notify_all();
  try {
    run_lane(kComputeStream);
  } catch (...) {
    fail(std::current_exception());
  }
  for (size_t s = 1; s < program_.streams.size(); ++s)
    for (int done = run_done_[s]; done != run_number_; done = run_done_[s]) run_done_[s].wait(done);
  trace_ = nullptr;
  if (failed_) std::rethrow_exception(error_);
}

void Executor::communicate(StreamId stream) {
  for (int seen = 0;;) {
    run_number_.wait(seen);
    seen = run_number_;
    if (stop_) return;
    try {
      run_lane(stream);
    } catch (...) {
      fail(std::current_exception());
    }
    run_done_[stream.index()] = seen;
    run_done_[stream.index()].notify_all();
  }
}

void Executor::run_lane(StreamId stream) {
  for (const int i : (*lanes_)[stream.index()]) {
    if (failed_.load(std::memory_order_relaxed)) return;
    const Issue& issue = expanded_->issues[static_cast<size_t>(i)];
    if (options_.poison && stream != kComputeStream)
      if (const int freed = poison_waits_.at(expanded_)[static_cast<size_t>(i)]; freed >= 0)
        wait_for({kComputeStream, freed});
    run_issue(issue);
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
      (*load_)(call.micro, inputs_[static_cast<size_t>(body)]);
      break;
    case InstrKind::Free:
      if (options_.poison && !in_message_[instr.frees.index()]) {
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
    case CollectiveKind::AllToAllV:
      exchange_rows(b, comm);
      break;
    case CollectiveKind::Send:
      comm.send(b.in[0], c.count, c.dtype, 1 - comm.rank());
      break;
    case CollectiveKind::Recv:
      comm.recv(b.out[0], c.count, c.dtype, 1 - comm.rank());
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
