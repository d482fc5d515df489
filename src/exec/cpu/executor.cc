#include "exec/cpu/executor.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/clock.h"
#include "base/error.h"
#include "base/philox.h"
#include "base/split_float.h"
#include "exec/exchange_pieces.h"
#include "exec/exchange_rows.h"
#include "exec/failure.h"
#include "exec/messages.h"
#include "exec/trace_event.h"
#include "kernels/cpu/elementwise/pointwise.h"

namespace quintet::exec::cpu {

using program::CollectiveKind;
using program::Expanded;
using program::Instr;
using program::InstrKind;
using program::Issue;
using program::kComputeStream;
using program::StreamId;

namespace {

constexpr int64_t kDrawGrain = 4096;  // elements

// The first call after `call` that begins a micro-batch.
int next_micro_batch(const std::vector<program::Call>& calls, int call) {
  for (size_t c = static_cast<size_t>(call) + 1; c < calls.size(); ++c)
    if (calls[c].micro >= 0 && calls[c].micro != calls[c - 1].micro) return static_cast<int>(c);
  return std::numeric_limits<int>::max();
}

comm::ReduceOp op_of(graph::Reduction r) {
  return r == graph::Reduction::Sum ? comm::ReduceOp::Sum : comm::ReduceOp::Max;
}

}  // namespace

CpuExecutor::CpuExecutor(const program::Program& program, comm::World& world, const ExecutorOptions& options)
    : program_(program),
      world_(world),
      options_(options),
      arena_(base::Bytes(program.arena_bytes + kGuardBytes)),
      pool_(std::make_unique<device::ThreadPool>(options.threads)),
      comm_pool_(std::make_unique<device::ThreadPool>(1)),
      progress_(std::make_unique<std::atomic<int>[]>(program.streams.size())),
      run_done_(std::make_unique<std::atomic<int>[]>(program.streams.size())) {
  for (const program::ScalarDecl& s : program.scalar_table)
    if (s.kind == program::ScalarKind::State) slot(s.name) = s.initial;
  for (const program::Communicator& c : program.comms) comms_.push_back(world.create(c.members, c.name()));
  bind();
  for (size_t t = 1; t < program.streams.size(); ++t)
    threads_.emplace_back([this, t] { communicate(StreamId(static_cast<int32_t>(t))); });
}

CpuExecutor::~CpuExecutor() {
  stop_ = true;
  ++run_number_;
  run_number_.notify_all();
  for (std::thread& t : threads_) t.join();
}

void CpuExecutor::bind() {
  const auto address_of = [&](const program::Operand& o) { return address(o.buffer) + o.offset_bytes; };
  in_message_ = buffers_in_messages(program_);
  for (const program::Body& body : program_.bodies) {
    std::vector<Bound>& list = bound_.emplace_back();
    inputs_.emplace_back();
    for (const Instr& instr : body.instrs) {
      Bound b;
      b.instr = &instr;
      b.workspace = address(program_.workspace);
      b.pool = instr.stream == kComputeStream ? pool_.get() : comm_pool_.get();
      for (const program::Operand& o : instr.in) b.in.push_back(address_of(o));
      for (const program::Operand& o : instr.out) b.out.push_back(address_of(o));
      if (instr.kind == InstrKind::Compute)
        b.kernel = &find_kernel(*instr.op, options_.kernels);  // fails now, not in step 30
      if (instr.kind == InstrKind::LoadBatch)
        for (size_t i = 0; i < instr.out.size(); ++i)
          inputs_.back().push_back(
              {program_.input(instr.out[i].buffer)->spec, reinterpret_cast<int32_t*>(b.out[i])});
      list.push_back(std::move(b));
    }
  }
}

std::byte* CpuExecutor::address(program::BufferId id) const {
  return arena_.data() + program_.buffer(id).offset;
}

double& CpuExecutor::slot(std::string_view scalar) const {
  return *reinterpret_cast<double*>(address(program_.scalars) +
                                    program_.scalar_slot(scalar) * program::kScalarBytes);
}

void CpuExecutor::set_dropout_key(int64_t key) {
  std::memcpy(&slot(program::scalars::kDropoutKey), &key, sizeof(key));
}

std::span<const double> CpuExecutor::sums() const {
  if (!program_.sums.valid()) return {};
  return {reinterpret_cast<const double*>(address(program_.sums)),
          static_cast<size_t>(program_.buffer(program_.sums).bytes) / sizeof(double)};
}

HostBytes CpuExecutor::read(const Range& range) const {
  return HostBytes(address(range.buffer) + range.offset);
}

void CpuExecutor::write(const Range& range, const std::function<void(std::byte*)>& fill) {
  fill(address(range.buffer) + range.offset);
}

namespace {

// Element i of a draw.
double drawn(const Draw& d, int64_t i) {
  if (d.kind == Draw::Kind::Zeros) return 0.0;
  int64_t local = d.first + i, at = 0, stride = 1;
  for (size_t k = d.box.size(); k-- > 0;) {
    const int64_t j = d.begin[k] + local % d.box[k];
    local /= d.box[k];
    if (j >= d.whole[k]) return 0.0;  // padding
    at += j * stride;
    stride *= d.whole[k];
  }
  return d.kind == Draw::Kind::Ones ? 1.0 : d.stddev * base::normal(d.key, static_cast<uint64_t>(at));
}

}  // namespace

void CpuExecutor::draw(const Range& range, base::DType dtype, const Draw& d) {
  with_type(dtype, [&]<class T>(T) {
    T* out = reinterpret_cast<T*>(address(range.buffer) + range.offset);
    const int64_t count = range.bytes / static_cast<int64_t>(sizeof(T));
    pool_->parallel_for(0, count, kDrawGrain, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        if constexpr (std::is_same_v<T, double>)
          out[i] = drawn(d, i);
        else
          out[i] = T(static_cast<float>(drawn(d, i)));
      }
    });
  });
}

void CpuExecutor::draw_split(const Range& high, const Range& low, const Draw& d) {
  auto* weight = reinterpret_cast<base::Bf16*>(address(high.buffer) + high.offset);
  auto* remainder = reinterpret_cast<int16_t*>(address(low.buffer) + low.offset);
  pool_->parallel_for(0, low.bytes / 2, kDrawGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const base::SplitFloat s = base::split_float(static_cast<float>(drawn(d, i)));
      weight[i] = s.high;
      remainder[i] = s.low;
    }
  });
}

void CpuExecutor::convert(const Range& from, base::DType from_type, const Range& to, base::DType to_type) {
  with_type(from_type, [&]<class X>(X) {
    with_type(to_type, [&]<class Y>(Y) {
      kernels::cpu::cast(reinterpret_cast<const X*>(address(from.buffer) + from.offset),
                         reinterpret_cast<Y*>(address(to.buffer) + to.offset),
                         from.bytes / static_cast<int64_t>(sizeof(X)), *pool_);
    });
  });
}

// Which thread executes an issue: that of its stream, except that the calling thread executes collectives
// whose result the next issue of the compute stream waits for. Messages always stay on their own stream.
const CpuExecutor::Lanes& CpuExecutor::lanes_of(const Expanded& expanded) {
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
        const program::Wait& wait =
            expanded.waits[static_cast<size_t>(issue.first_wait) + static_cast<size_t>(w)];
        awaited[wait.stream.index()] = wait.position;
      }
    } else {
      on_compute[i] = !is_message(program_, instr) &&
                      (options_.poison || awaited[instr.stream.index()] >= issue.position);
    }
  }
  auto lanes = std::make_unique<Lanes>(program_.streams.size());
  if (options_.poison) poison_waits_[&expanded] = frees_before_messages(program_, expanded, in_message_);
  for (size_t i = 0; i < expanded.issues.size(); ++i) {
    const StreamId stream = instr_of(program_, expanded.issues[i]).stream;
    (*lanes)[on_compute[i] ? 0 : stream.index()].push_back(static_cast<int>(i));
  }
  return *lane_cache_.emplace_back(&expanded, std::move(lanes)).second;
}

void CpuExecutor::start(const Expanded& expanded, const Inputs& inputs, const Inputs*) {
  QUINTET_CHECK(expanded.num_streams == static_cast<int>(program_.streams.size()),
                "the expansion belongs to another program");
  expanded_ = &expanded;
  load_ = &inputs.load;
  lanes_ = &lanes_of(expanded);
  for (size_t s = 0; s < program_.streams.size(); ++s) progress_[s].store(0, std::memory_order_relaxed);
  begin_asking();
  reported_ = 0;
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
  stop_asked_ = nullptr;
  report_ = nullptr;
  if (failed_) std::rethrow_exception(error_);
}

void CpuExecutor::communicate(StreamId stream) {
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

void CpuExecutor::run_lane(StreamId stream) {
  const std::vector<int>& lane = (*lanes_)[stream.index()];
  Passes passes;
  for (size_t at = 0; at < lane.size(); ++at) {
    if (failed_.load(std::memory_order_relaxed)) return;
    const Issue& issue = expanded_->issues[static_cast<size_t>(lane[at])];
    if (stream == kComputeStream) {
      ask_before(issue.call);
      if (report_ && issue.call > reported_)
        report_(reported_ = issue.call, static_cast<int>(expanded_->calls.size()));
    }
    if (!may_enter(issue.call)) return;
    if (options_.poison && stream != kComputeStream)
      if (const int freed = poison_waits_.at(expanded_)[static_cast<size_t>(lane[at])]; freed >= 0)
        wait_for({kComputeStream, freed});
    const Instr& instr = instr_of(program_, issue);
    if (instr.repeated && passes.done()) {
      wait_before(issue);  // later instructions rely on it
      continue;
    }
    if (instr.kind == InstrKind::End && passes.next()) {
      at = passes.begin;
      continue;
    }
    run_issue(issue);
    if (instr.kind == InstrKind::Repeat) {
      const Bound& b = bound_[static_cast<size_t>(issue.body)][static_cast<size_t>(issue.instr)];
      passes = {.begin = at, .count = *b.input<int32_t>(0), .now = b.output<int32_t>(0)};
      *passes.now = 1;
    }
  }
}

// The loop has just asked when a run starts, so the first question is before the second micro-batch.
void CpuExecutor::begin_asking() {
  abandoned_at_ = kNever;
  next_question_ = stop_asked_ ? next_micro_batch(expanded_->calls, 0) : kNever;
  if (next_question_ < kNever) next_question_ = next_micro_batch(expanded_->calls, next_question_);
  open_until_ = next_question_;
}

void CpuExecutor::ask_before(int call) {
  if (call < next_question_) return;
  const bool stop = stop_asked_();
  if (stop) abandoned_at_ = call + 1;
  next_question_ = stop ? kNever : next_micro_batch(expanded_->calls, call);
  open_until_ = next_question_;
  open_until_.notify_all();
}

// Whether a stream executes an issue of this call; waits for the compute stream to decide.
bool CpuExecutor::may_enter(int call) {
  for (int until = open_until_; until < call; until = open_until_) open_until_.wait(until);
  return call < abandoned_at_;
}

void CpuExecutor::wait_before(const Issue& issue) {
  const Instr& instr = instr_of(program_, issue);
  // Streams run in order even when two threads execute their instructions.
  if (instr.stream != kComputeStream && issue.position > 0) wait_for({instr.stream, issue.position - 1});
  for (int w = 0; w < issue.num_waits; ++w)
    wait_for(expanded_->waits[static_cast<size_t>(issue.first_wait) + static_cast<size_t>(w)]);
}

void CpuExecutor::run_issue(const Issue& issue) {
  const Instr& instr = instr_of(program_, issue);
  wait_before(issue);
  if (failed_.load(std::memory_order_relaxed)) return;

  const program::Call& call = expanded_->calls[static_cast<size_t>(issue.call)];
  if (trace_ != nullptr && does_work(instr)) {
    const int64_t start = base::now_ns();
    run_instr(issue.body, issue.instr, instr, call);
    add_event(*trace_, instr, call, trace_step_, start, base::now_ns() - start);
  } else if (observer_ && does_work(instr)) {
    run_observed(issue.body, issue.instr, instr, call);
  } else {
    run_instr(issue.body, issue.instr, instr, call);
  }
  // Whoever waits for what is repeated waits for the last pass: End advances past all of it.
  if (!instr.repeated) advance(instr.stream, issue.position);
}

void CpuExecutor::run_observed(int body, int index, const Instr& instr, const program::Call& call) {
  const Bound& b = bound_[static_cast<size_t>(body)][static_cast<size_t>(index)];
  std::vector<std::vector<std::byte>> before;
  if (accumulates(instr, call))
    for (size_t i = 0; i < instr.out.size(); ++i)
      before.emplace_back(b.out[i], b.out[i] + instr.out[i].bytes());
  run_instr(body, index, instr, call);
  observer_(instr, call, b.out, before);
}

void CpuExecutor::run_instr(int body, int index, const Instr& instr, const program::Call& call) {
  const Bound& b = bound_[static_cast<size_t>(body)][static_cast<size_t>(index)];
  switch (instr.kind) {
    case InstrKind::Compute:
      b.kernel->run(b, accumulates(instr, call));
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
    case InstrKind::Repeat:
    case InstrKind::End:
      break;  // run_lane
  }
}

void CpuExecutor::run_collective(const Bound& b) {
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
    case CollectiveKind::Exchange: {
      const PiecesOfMember pieces = plan_pieces(b, comm.rank(), comm.size());
      const comm::Exchange& e = pieces.exchange;
      comm.all_to_all_v(e.send, e.send_offsets, e.send_counts, e.recv, e.recv_offsets, e.recv_counts,
                        c.dtype);
      break;
    }
  }
}

void CpuExecutor::wait_for(const program::Wait& wait) {
  std::atomic<int>& progress = progress_[wait.stream.index()];
  for (int done = progress.load(std::memory_order_acquire); done <= wait.position;
       done = progress.load(std::memory_order_acquire))
    progress.wait(done, std::memory_order_acquire);
}

void CpuExecutor::advance(StreamId stream, int position) {
  std::atomic<int>& progress = progress_[stream.index()];
  int done = progress.load(std::memory_order_relaxed);
  // A failure has set the counter to its maximum; it must not be lowered.
  while (done <= position && !progress.compare_exchange_weak(done, position + 1, std::memory_order_release)) {
  }
  progress.notify_all();
}

void CpuExecutor::fail(std::exception_ptr error) {
  if (error_taken_.exchange(1) == 0) {
    error_ = std::move(error);
    failed_ = true;
    open_until_ = kNever;
    open_until_.notify_all();
    for (size_t s = 0; s < program_.streams.size(); ++s) {
      progress_[s] = std::numeric_limits<int>::max();
      progress_[s].notify_all();
    }
    // Peers may be waiting for this rank in a collective, and another thread of this rank for them.
    world_.abort(message_of(error_));
  }
}

std::vector<std::vector<comm::CallTotals>> CpuExecutor::traffic() const {
  std::vector<std::vector<comm::CallTotals>> list;
  for (const auto& c : comms_) list.push_back(c->totals());
  return list;
}

void CpuExecutor::trace_next(observe::RankTrace* trace, int64_t step) {
  trace_ = trace;
  trace_step_ = step;
}

void CpuExecutor::begin_measuring(int round) {
  std::memset(arena_.data() + program_.persistent_bytes, kMeasurePatterns[round],
              static_cast<size_t>(program_.arena_bytes + kGuardBytes - program_.persistent_bytes));
}

void CpuExecutor::end_measuring(int round) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(arena_.data());
  int64_t top = program_.arena_bytes + kGuardBytes;
  while (top > program_.persistent_bytes && bytes[top - 1] == kMeasurePatterns[round]) --top;
  note_touched(program_, top);
}

std::string CpuExecutor::device_name() const {
  return fmt::format("CPU, {} thread{}", options_.threads, options_.threads == 1 ? "" : "s");
}

}  // namespace quintet::exec::cpu
