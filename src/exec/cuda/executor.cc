#include "exec/cuda/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "exec/cuda/gemm_algorithms.h"
#include "exec/cuda/timer.h"
#include "exec/exchange_pieces.h"
#include "exec/exchange_rows.h"
#include "exec/failure.h"
#include "exec/messages.h"
#include "exec/watch.h"
#include "exec/with_type.h"
#include "kernels/cuda/elementwise/pointwise.h"
#include "kernels/cuda/optimizer/optimizer.h"
#include "kernels/cuda/support/fill.h"
#include "kernels/cuda/support/host_signal.h"
#include "kernels/cuda/support/touched_bytes.h"

namespace quintet::exec::cuda {

namespace gpu = device::cuda;
using program::CollectiveKind;
using program::Expanded;
using program::Instr;
using program::InstrKind;
using program::Issue;

namespace {

comm::ReduceOp op_of(graph::Reduction r) {
  return r == graph::Reduction::Sum ? comm::ReduceOp::Sum : comm::ReduceOp::Max;
}

// The index of this rank's device, which is made current.
int choose_device(int wanted) {
  const int count = gpu::device_count();
  QUINTET_CHECK(count > 0, "no CUDA device: require_device was not called");
  const int index = wanted % count;
  gpu::use_device(index);
  return index;
}

std::byte* aligned_arena(const program::Program& p, std::byte* memory) {
  const int64_t offset = p.workspace.valid() ? p.buffer(p.workspace).offset : 0;
  const int64_t align = kernels::cuda::kWorkspaceAlignment;
  return memory + (align - offset % align) % align;
}

int64_t sums_bytes(const program::Program& p) { return p.sums.valid() ? p.buffer(p.sums).bytes : 0; }

int64_t scalars_bytes(const program::Program& p) { return p.buffer(p.scalars).bytes; }

}  // namespace

CudaExecutor::CudaExecutor(const program::Program& program, comm::World& world,
                           const ExecutorOptions& options)
    : program_(program),
      world_(world),
      options_(options),
      device_(choose_device(options.device_index)),
      memory_(program.arena_bytes + kGuardBytes + kernels::cuda::kWorkspaceAlignment),
      arena_(aligned_arena(program, memory_.data())),
      streams_(program.streams.size()),
      progress_(program, world.size() > 1),
      libraries_({.tune = options.tune && !options.tuned.empty(),
                  .tf32 = options.tf32,
                  .constant_weights = std::none_of(
                      program.bodies.begin(), program.bodies.end(),
                      [](const program::Body& body) { return body.kind == program::BodyKind::Step; })}),
      in_message_(buffers_in_messages(program)) {
  host_scalars_.resize(static_cast<size_t>(program.num_scalar_inputs()));
  for (size_t s = 0; s < streams_.size(); ++s) joins_.emplace_back();
  for (Readback& back : readbacks_) {
    back.values = gpu::Pinned(scalars_bytes(program) + sums_bytes(program));
    for (size_t i = 0; i < program.scalar_table.size(); ++i)
      reinterpret_cast<double*>(back.values.data())[i] = program.scalar_table[i].initial;
  }
  copies_.record(staged_);  // none is in progress
  streams_[0].copy(address(program.scalars), readbacks_[0].values.data(), scalars_bytes(program));
  progress_.mark(0, 0,
                 streams_[0].handle());  // loads its code now, not after a call that waits for a peer
  streams_[0].synchronize();
  std::vector<comm::DeviceGroup> groups;
  for (const program::Communicator& c : program.comms) groups.push_back({c.members, c.name()});
  if (world.size() > 1 || !groups.empty()) comms_ = comm::make_device_communicators(groups, world, device_);
  // All buffers that are sent are in the arena.
  for (const auto& c : comms_) c->register_memory(memory_.data(), memory_.bytes());
  bind();
  prepare_kernels();
}

// A run still in progress, because something else failed, must not lose its memory. It may wait for its peers
// forever, so its calls are aborted.
CudaExecutor::~CudaExecutor() {
  try {
    gpu::use_device(device_);
    copies_.synchronize();
    if (started_ == finished_) return;
    for (const auto& c : comms_) c->abort("the rank's executor is destroyed while a step is running");
    for (const gpu::Stream& stream : streams_) stream.synchronize();
  } catch (...) {  // the first failure is reported where it occurred
  }
}

std::byte* CudaExecutor::address(program::BufferId id) const { return arena_ + program_.buffer(id).offset; }

void CudaExecutor::bind() {
  const auto address_of = [&](const program::Operand& o) { return address(o.buffer) + o.offset_bytes; };
  for (const program::Body& body : program_.bodies) {
    std::vector<Bound>& list = bound_.emplace_back();
    for (const Instr& instr : body.instrs) {
      Bound b;
      b.instr = &instr;
      b.workspace = program_.workspace.valid() ? address(program_.workspace) : nullptr;
      b.libraries = &libraries_;
      const bool moved = options_.poison && !is_message(program_, instr);
      b.stream = streams_[moved ? 0 : instr.stream.index()].handle();
      for (const program::Operand& o : instr.in) b.in.push_back(address_of(o));
      for (const program::Operand& o : instr.out) b.out.push_back(address_of(o));
      if (instr.kind == InstrKind::Compute)
        b.kernel = &find_kernel(*instr.op, options_.kernels);  // fails now, not in step 30
      list.push_back(std::move(b));
    }
  }
}

// Rank 0 tunes first and broadcasts its results, so that equal problems run equal algorithms on all ranks.
// The others tune only the problems that rank 0 does not have. Rank 0 owns the file.
void CudaExecutor::prepare_kernels() {
  const auto prepare_all = [&] {
    for (std::vector<Bound>& list : bound_)
      for (Bound& b : list) {
        if (b.instr->kind != InstrKind::Compute) continue;
        if (b.kernel->prepare != nullptr) b.kernel->prepare(b);
      }
  };
  const bool first = world_.rank().value == 0, tunes = libraries_.tunes();
  if (tunes && first && base::file_exists(options_.tuned))
    libraries_.read_tuned(base::read_file(options_.tuned));
  int64_t known = libraries_.tuned_count();
  if (first) prepare_all();
  if (tunes) libraries_.read_tuned(broadcast_algorithms(first ? libraries_.tuned() : std::string(), world_));
  if (!first) known = libraries_.tuned_count();
  if (!first) prepare_all();
  if (tunes)
    libraries_.read_tuned(
        agree_on_algorithms(libraries_.tuned(), libraries_.tuned_count() > known, options_.tuned, world_));
  if (first && options_.log) {
    for (const std::string& remark : libraries_.remarks()) options_.log(remark);
    if (const std::string choices = libraries_.attention_choices().summary(); !choices.empty())
      options_.log(choices);
  }
  if (first && options_.tune && !tunes && options_.log)
    options_.log(
        "GEMM algorithms are cuBLASLt's first choices, not tuned: there is no cache folder to keep tuned "
        "ones in for the next run (set QUINTET_CACHE_DIR)");
  gpu::synchronize_device();
}

CudaExecutor::Prepared& CudaExecutor::prepare(const Expanded& expanded) {
  QUINTET_CHECK(expanded.num_streams == static_cast<int>(program_.streams.size()),
                "the expansion belongs to another program");
  const auto [it, is_new] = prepared_.try_emplace(&expanded);
  Prepared& p = it->second;
  if (!is_new) return p;
  p.plan = make_launch_plan(program_, expanded, options_.poison);
  for (int e = 0; e < p.plan.num_events; ++e) p.events.emplace_back();
  p.staging = gpu::Memory(p.plan.staging_bytes);
  for (Prepared::Slot& slot : p.slots) slot.host = gpu::Pinned(p.plan.staging_bytes);
  p.counts = gpu::Pinned(p.plan.counts_bytes);
  p.pieces.resize(static_cast<size_t>(p.plan.num_graphs));
  log_not_captured(p);
  return p;
}

void CudaExecutor::load(Prepared& p, int slot, const Inputs& inputs) const {
  Prepared::Slot& to = p.slots[slot];
  if (to.run >= finished_) to.copied.synchronize();
  to.id = -1;
  std::vector<InputRows> list;
  for (const LaunchPlan::Load& l : p.plan.loads) {
    list.clear();
    for (const LaunchPlan::Load::Input& input : l.inputs)
      list.push_back({input.spec, reinterpret_cast<int32_t*>(to.host.data() + input.offset)});
    inputs.load(l.micro, list);
  }
  to.source = inputs.source;
  to.id = inputs.id;
}

// The slot that holds the inputs of this run: loaded during the previous run, or now.
int CudaExecutor::take_inputs(Prepared& p, const Inputs& inputs) {
  for (int slot = 0; slot < 2; ++slot)
    if (inputs.id >= 0 && p.slots[slot].id == inputs.id && p.slots[slot].source == inputs.source) return slot;
  const int slot = 1 - p.slot;
  load(p, slot, inputs);
  return slot;
}

void CudaExecutor::start(const Expanded& expanded, const Inputs& inputs, const Inputs* next) {
  QUINTET_CHECK(started_ - finished_ < 2, "two runs are in progress already");
  gpu::use_device(device_);
  try {
    Prepared& p = prepare(expanded);
    p.slot = take_inputs(p, inputs);
    Prepared::Slot& slot = p.slots[p.slot];
    std::copy(host_scalars_.begin(), host_scalars_.end(), reinterpret_cast<double*>(slot.host.data()));
    const gpu::Stream& compute = streams_[0];
    // On the compute stream, like the scalars below: a few kilobytes at the start and end of the step, with
    // nothing that another stream could overlap.
    compute.copy(p.staging.data(), slot.host.data(), p.plan.staging_bytes);
    compute.record(slot.copied);
    slot.id = -1;  // used by one run only
    slot.run = started_;
    Readback& back = readback(started_);
    back.expanded = &expanded;
    progress_.begin(compute.handle());
    progress_.describes(expanded);
    if (trace_ != nullptr) {
      Timer timer(program_, expanded, compute);
      launch_watched(expanded, p, &timer, false);
      compute.record(back.done);
      wait_for(back.done);
      timer.write(*std::exchange(trace_, nullptr), trace_step_);
    } else {
      launch(expanded, p);
    }
    // Detects ranks that would deadlock before they do. Later runs repeat these calls.
    if (p.runs == 0 && world_.size() > 1) comm::compare_calls(comms_, world_);
    auto* const values = reinterpret_cast<double*>(back.values.data());
    compute.copy(values, address(program_.scalars), scalars_bytes(program_));
    if (program_.sums.valid())
      compute.copy(values + program_.scalar_table.size(), address(program_.sums), sums_bytes(program_));
    compute.record(back.done);
    ++started_;
    ++p.runs;
    if (next != nullptr && next->id >= 0) load(p, 1 - p.slot, *next);
  } catch (...) {
    give_up();
  }
}

void CudaExecutor::finish() {
  QUINTET_CHECK(started_ > finished_, "no run is in progress");
  gpu::use_device(device_);
  const Readback& back = readback(finished_);
  try {
    progress_.describes(*back.expanded);
    wait_for(back.done);
  } catch (...) {
    give_up();
  }
  ++finished_;
}

void CudaExecutor::give_up() {
  const std::string why = message_of(std::current_exception());
  streams_[0].drop_capture();
  for (const auto& c : comms_) try {
      c->abort(why);
    } catch (...) {  // the first failure is the one to report
    }
  if (world_.size() > 1) world_.abort(why);
  throw;
}

void CudaExecutor::log_not_captured(const Prepared& p) const {
  if (options_.capture && !p.plan.not_captured.empty() && options_.log)
    options_.log("not captured as one CUDA graph: " + p.plan.not_captured);
}

void CudaExecutor::launch(const Expanded& expanded, Prepared& p) {
  const gpu::Stream& compute = streams_[0];
  // Libraries load their code on first use, which cannot be captured: the first run is not captured.
  const bool again = options_.capture && p.runs > 0;
  if (!again || !p.plan.not_captured.empty())
    return launch_watched(expanded, p, nullptr, again && !p.capture_failed);
  if (!p.graph) try {
      compute.begin_capture();
      enqueue(expanded, p, nullptr, false);
      p.graph = compute.end_capture();
    } catch (const std::exception& e) {
      // Not if peers have captured theirs, and not silently.
      if (world_.size() > 1 || !options_.log) throw;
      compute.drop_capture();
      enqueue(expanded, p, nullptr, false);
      p.capture_failed = true;
      p.plan.not_captured =
          std::string("the capture failed (") + e.what() + "), every step is launched plainly";
      return log_not_captured(p);
    }
  p.graph.launch(compute.handle());
}

// A device's queue holds about a thousand launches. When the first of them waits for a peer that never
// arrives, this thread eventually blocks in the driver and cannot see that the timeout has passed.
void CudaExecutor::launch_watched(const Expanded& expanded, Prepared& p, Timer* timer, bool replays) {
  if (world_.size() == 1) return enqueue(expanded, p, timer, replays);
  constexpr std::chrono::seconds kMore{5};  // the regular timeout comes first
  const auto limit = world_.timeout() + kMore;
  const Watch watch(limit, [&, limit] {
    world_.abort(fmt::format(
        "the step was not launched within {} s: the GPU's queue is full, and its first call waits for a "
        "peer{}",
        std::chrono::duration_cast<std::chrono::seconds>(limit).count(), progress_.describe()));
  });
  enqueue(expanded, p, timer, replays);
}

void CudaExecutor::enqueue_piece(const Expanded& expanded, Prepared& p, const LaunchPlan::Piece& piece) {
  const gpu::Stream& compute = streams_[0];
  gpu::Graph& graph = p.pieces[static_cast<size_t>(piece.graph)];
  if (!graph) {
    compute.begin_capture();
    for (const int issue : piece.issues) enqueue_instr(expanded, p, static_cast<size_t>(issue));
    graph = compute.end_capture();
  }
  graph.launch(compute.handle());
}

void CudaExecutor::enqueue(const Expanded& expanded, Prepared& p, Timer* timer, bool replays) {
  const gpu::Stream& compute = streams_[0];
  compute.copy(address(program_.scalars), p.staging.data(),
               program_.num_scalar_inputs() * program::kScalarBytes);
  compute.record(fork_);
  for (size_t s = 1; s < streams_.size(); ++s)
    if (p.plan.lane_used[s]) streams_[s].wait(fork_);
  Passes passes;
  for (size_t i = 0; i < expanded.issues.size(); ++i) {
    const LaunchPlan::Step& step = p.plan.steps[i];
    const Instr& instr = instr_of(program_, expanded.issues[i]);
    const bool skipped = instr.repeated && passes.now >= passes.count;
    const LaunchPlan::Piece* const piece =
        replays && step.piece >= 0 ? &p.plan.pieces[static_cast<size_t>(step.piece)] : nullptr;
    if (piece != nullptr && piece->issues.front() != static_cast<int>(i)) continue;  // part of a launch
    const gpu::Stream& stream = streams_[static_cast<size_t>(step.lane)];
    if (step.changes_saved) stream.wait_outside(staged_);
    for (int w = 0; w < step.num_waits; ++w)
      stream.wait(p.events[static_cast<size_t>(p.plan.waits[static_cast<size_t>(step.first_wait + w)])]);
    const bool timed = timer != nullptr && !skipped && does_work(instr);
    if (timed) timer->begin(i, stream);
    if (skipped) {  // what it waits for, and its event, are relied on by later ones
    } else if (piece != nullptr) {
      enqueue_piece(expanded, p, *piece);
    } else if (instr.kind == InstrKind::Repeat) {
      passes = begin_passes(expanded, p, i);
    } else if (instr.kind == InstrKind::End) {
      if (next_pass(passes)) i = passes.begin;
    } else {
      enqueue_instr(expanded, p, i);
    }
    if (timed) timer->end(stream);
    const int event =
        piece != nullptr ? p.plan.steps[static_cast<size_t>(piece->issues.back())].event : step.event;
    if (event >= 0) stream.record(p.events[static_cast<size_t>(event)]);
    if (!skipped && instr.kind == InstrKind::Collective) progress_.mark(step.lane, i, stream.handle());
  }
  for (size_t s = 1; s < streams_.size(); ++s)
    if (p.plan.lane_used[s]) {
      streams_[s].record(joins_[s]);
      compute.wait(joins_[s]);
    }
}

void CudaExecutor::enqueue_instr(const Expanded& expanded, const Prepared& p, size_t i) {
  const Issue& issue = expanded.issues[i];
  const LaunchPlan::Step& step = p.plan.steps[i];
  const Bound& b = bound_[static_cast<size_t>(issue.body)][static_cast<size_t>(issue.instr)];
  const gpu::Stream& stream = streams_[static_cast<size_t>(step.lane)];
  switch (b.instr->kind) {
    case InstrKind::Compute:
      b.kernel->run(b, accumulates(*b.instr, expanded.calls[static_cast<size_t>(issue.call)]));
      break;
    case InstrKind::Collective:
      run_collective(b, p, step);
      break;
    case InstrKind::LoadBatch:
      for (const LaunchPlan::Load::Input& input : p.plan.loads[static_cast<size_t>(step.load)].inputs)
        stream.copy(arena_ + input.arena_offset, p.staging.data() + input.offset, input.bytes);
      break;
    case InstrKind::Free:
      if (options_.poison && !in_message_[b.instr->frees.index()])
        stream.fill(address(b.instr->frees), 0xFF, program_.buffer(b.instr->frees).bytes);
      break;
    case InstrKind::Repeat:
    case InstrKind::End:
      break;  // enqueue
  }
}

CudaExecutor::Passes CudaExecutor::begin_passes(const Expanded& expanded, const Prepared& p, size_t i) {
  const Issue& issue = expanded.issues[i];
  const LaunchPlan::Step& step = p.plan.steps[i];
  const Bound& b = bound_[static_cast<size_t>(issue.body)][static_cast<size_t>(issue.instr)];
  const gpu::Stream& stream = streams_[static_cast<size_t>(step.lane)];
  auto* const count = reinterpret_cast<int32_t*>(p.counts.data() + step.passes);
  if (step.reads_passes) {
    stream.copy(count, arena_ + step.passes_offset, int64_t{sizeof(*count)});
    stream.record(counted_);
    wait_for(counted_);
  }
  Passes passes{.begin = i, .count = *count, .current = b.output<uint32_t>(0), .stream = &stream};
  next_pass(passes);
  return passes;
}

bool CudaExecutor::next_pass(Passes& passes) {
  if (++passes.now >= passes.count) return false;
  kernels::cuda::mark(passes.current, static_cast<uint32_t>(passes.now), passes.stream->handle());
  return true;
}

void CudaExecutor::run_collective(const Bound& b, const Prepared& p, const LaunchPlan::Step& step) {
  const gpu::Stream& stream = streams_[static_cast<size_t>(step.lane)];
  const program::Collective& c = b.instr->collective;
  comm::DeviceCommunicator& comm = *comms_[c.comm.index()];
  switch (c.kind) {
    case CollectiveKind::AllReduce:
      comm.all_reduce(b.out[0], c.count, c.dtype, op_of(c.reduction), stream.handle());
      break;
    case CollectiveKind::AllGather:
      comm.all_gather(b.in[0], b.out[0], c.count, c.dtype, stream.handle());
      break;
    case CollectiveKind::ReduceScatter:
      comm.reduce_scatter(b.in[0], b.out[0], c.count, c.dtype, op_of(c.reduction), stream.handle());
      break;
    case CollectiveKind::AllToAll:
      comm.all_to_all(b.in[0], b.out[0], c.count, c.dtype, stream.handle());
      break;
    case CollectiveKind::AllToAllV:
      exchange_rows(b, comm, p, step);
      break;
    case CollectiveKind::Send:
      comm.send(b.in[0], c.count, c.dtype, 1 - comm.rank(), stream.handle());
      break;
    case CollectiveKind::Recv:
      comm.recv(b.out[0], c.count, c.dtype, 1 - comm.rank(), stream.handle());
      break;
    case CollectiveKind::Exchange:
      comm.all_to_all_v(plan_pieces(b, comm.rank(), comm.size()).exchange, c.dtype, stream.handle());
      break;
  }
}

void CudaExecutor::exchange_rows(const Bound& b, comm::DeviceCommunicator& comm, const Prepared& p,
                                 const LaunchPlan::Step& step) {
  const gpu::Stream& stream = streams_[static_cast<size_t>(step.lane)];
  RowCounts counts;
  if (step.counts >= 0) {
    std::byte* const host = p.counts.data() + step.counts;
    const int64_t send = b.in_type(1).bytes(), received = b.in_type(2).bytes();
    if (step.reads_back) {
      stream.copy(host, b.in[1], send);
      stream.copy(host + send, b.in[2], received);
      if (step.reads_passes)
        stream.copy(p.counts.data() + step.passes, arena_ + step.passes_offset, int64_t{sizeof(int32_t)});
      stream.record(counted_);
      wait_for(counted_);
    }
    counts = {.send = reinterpret_cast<const int32_t*>(host),
              .received = reinterpret_cast<const int32_t*>(host + send)};
  }
  const RowExchange rows = plan_rows(b, comm.size(), counts);
  comm.all_to_all_v(rows.exchange, rows.dtype, stream.handle());
}

// Other ranks may fail in the meantime.
void CudaExecutor::wait_for(const gpu::Event& event) {
  if (world_.size() == 1) return event.synchronize();
  comm::wait_for_device([&] { return event.done(); }, comms_, world_, [&] { return progress_.describe(); });
}

void CudaExecutor::trace_next(observe::RankTrace* trace, int64_t step) {
  trace_ = trace;
  trace_step_ = step;
}

HostBytes CudaExecutor::read(const Range& range) const {
  gpu::use_device(device_);
  auto copy = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(range.bytes));
  streams_[0].copy(copy.get(), address(range), range.bytes);
  streams_[0].synchronize();
  return HostBytes(std::move(copy));
}

std::span<std::byte> CudaExecutor::staging(int64_t bytes) {
  gpu::use_device(device_);
  staging_ = gpu::Pinned(bytes);
  return {staging_.data(), static_cast<size_t>(bytes)};
}

void CudaExecutor::stage(std::span<const Staged> copies) {
  gpu::use_device(device_);
  streams_[0].record(fork_);  // after whatever changed the states
  copies_.wait(fork_);
  for (const Staged& copy : copies)
    copies_.copy(staging_.data() + copy.to, address(copy.from), copy.from.bytes);
  copies_.record(staged_);
}

void CudaExecutor::wait_staged() {
  gpu::use_device(device_);
  staged_.synchronize();
}

void CudaExecutor::write(const Range& range, const std::function<void(std::byte*)>& fill) {
  gpu::use_device(device_);
  constexpr int64_t kPinnedFrom = int64_t{1} << 20, kPinnedBytes = int64_t{32} << 20;
  if (range.bytes >= kPinnedFrom && range.bytes <= kPinnedBytes) {
    gpu::Pinned block;
    {
      const std::lock_guard lock(written_mutex_);
      if (!written_.empty()) {
        block = std::move(written_.back());
        written_.pop_back();
      }
    }
    if (block.bytes() == 0) block = gpu::Pinned(kPinnedBytes);
    fill(block.data());
    const std::lock_guard lock(written_mutex_);
    streams_[0].copy(address(range), block.data(), range.bytes);
    streams_[0].synchronize();
    written_.push_back(std::move(block));
    return;
  }
  const auto copy = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(range.bytes));
  fill(copy.get());
  const std::lock_guard lock(written_mutex_);
  streams_[0].copy(address(range), copy.get(), range.bytes);
  streams_[0].synchronize();
}

namespace {

// `count` numbers of the draw, from `first` on.
template <class T>
void draw_numbers(T* to, int64_t count, const Draw& d, int64_t first, const gpu::Stream& stream) {
  namespace k = kernels::cuda;
  static_assert(kMaxDrawDims == k::kMaxBoxDims);
  QUINTET_CHECK(d.box.size() <= kMaxDrawDims, "draws of {} dims are not supported", d.box.size());
  k::Box box;
  box.dims = static_cast<int>(d.box.size());
  for (size_t i = 0; i < d.box.size(); ++i) {
    box.box[i] = d.box[i];
    box.whole[i] = d.whole[i];
    box.begin[i] = d.begin[i];
  }
  const k::Numbers numbers = d.kind == Draw::Kind::Normal ? k::Numbers::Normal
                             : d.kind == Draw::Kind::Ones ? k::Numbers::Ones
                                                          : k::Numbers::Zeros;
  k::draw(to, count, numbers, d.stddev, d.key, box, d.first + first, stream.handle());
}

}  // namespace

void CudaExecutor::draw(const Range& range, base::DType dtype, const Draw& d) {
  gpu::use_device(device_);
  with_type(dtype, [&]<class T>(T) {
    draw_numbers(reinterpret_cast<T*>(address(range)), range.bytes / static_cast<int64_t>(sizeof(T)), d, 0,
                 streams_[0]);
  });
}

// In small pieces, so that no f32 copy of the weights ever exists.
void CudaExecutor::draw_split(const Range& high, const Range& low, const Draw& d) {
  constexpr int64_t kPiece = int64_t{1} << 22;  // elements
  gpu::use_device(device_);
  const int64_t count = low.bytes / int64_t{sizeof(int16_t)};
  const gpu::Memory memory(std::min(count, kPiece) * int64_t{sizeof(float)});
  auto* const numbers = reinterpret_cast<float*>(memory.data());
  auto* const weight = reinterpret_cast<base::Bf16*>(address(high));
  auto* const remainder = reinterpret_cast<int16_t*>(address(low));
  for (int64_t first = 0; first < count; first += kPiece) {
    const int64_t n = std::min(kPiece, count - first);
    draw_numbers(numbers, n, d, first, streams_[0]);
    kernels::cuda::split_master(numbers, weight + first, remainder + first, n, streams_[0].handle());
  }
  streams_[0].synchronize();  // before the memory is freed
}

void CudaExecutor::convert(const Range& from, base::DType from_type, const Range& to, base::DType to_type) {
  gpu::use_device(device_);
  with_type(from_type, [&]<class X>(X) {
    with_type(to_type, [&]<class Y>(Y) {
      kernels::cuda::cast(reinterpret_cast<const X*>(address(from)), reinterpret_cast<Y*>(address(to)),
                          from.bytes / static_cast<int64_t>(sizeof(X)), streams_[0].handle());
    });
  });
}

double CudaExecutor::scalar(std::string_view name) const { return finished()[program_.scalar_slot(name)]; }

void CudaExecutor::set_scalar(std::string_view name, double value) {
  const auto slot = static_cast<size_t>(program_.scalar_slot(name));
  QUINTET_CHECK(slot < host_scalars_.size(), "scalar {} is computed by the program", name);
  host_scalars_[slot] = value;
}

void CudaExecutor::set_dropout_key(int64_t key) {
  std::memcpy(&host_scalars_[static_cast<size_t>(program_.scalar_slot(program::scalars::kDropoutKey))], &key,
              sizeof(key));
}

std::span<const double> CudaExecutor::sums() const {
  return {finished() + program_.scalar_table.size(),
          static_cast<size_t>(sums_bytes(program_)) / sizeof(double)};
}

void CudaExecutor::begin_measuring(int round) {
  gpu::use_device(device_);
  streams_[0].fill(arena_ + program_.persistent_bytes, kMeasurePatterns[round],
                   program_.arena_bytes + kGuardBytes - program_.persistent_bytes);
}

void CudaExecutor::end_measuring(int round) {
  gpu::use_device(device_);
  const gpu::Memory device_top(sizeof(unsigned long long));
  kernels::cuda::last_changed(arena_ + program_.persistent_bytes,
                              program_.arena_bytes + kGuardBytes - program_.persistent_bytes,
                              kMeasurePatterns[round],
                              reinterpret_cast<unsigned long long*>(device_top.data()), streams_[0].handle());
  unsigned long long top = 0;
  streams_[0].copy(&top, device_top.data(), sizeof(top));
  streams_[0].synchronize();
  note_touched(program_, program_.persistent_bytes + static_cast<int64_t>(top));
}

std::string CudaExecutor::device_name() const { return gpu::device_name(device_); }

int64_t CudaExecutor::extra_bytes() const {
  int64_t bytes = memory_.bytes() - program_.arena_bytes;
  for (const auto& [expanded, p] : prepared_) bytes += p.staging.bytes();
  return bytes;
}

}  // namespace quintet::exec::cuda
