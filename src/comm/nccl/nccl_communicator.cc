#include "comm/nccl/nccl_communicator.h"

#include <fmt/format.h>

#include "base/clock.h"
#include "base/error.h"
#include "comm/arguments.h"
#include "comm/members.h"
#include "comm/nccl/failure.h"
#include "comm/nccl/grouping.h"

namespace quintet::comm::nccl {
namespace {

using base::DType;
using Kind = Operation::Kind;

double seconds(std::chrono::nanoseconds t) { return static_cast<double>(t.count()) * 1e-9; }

}  // namespace

NcclCommunicator::NcclCommunicator(World& world, std::string name, int rank,
                                   std::vector<base::RankId> members)
    : DeviceCommunicator(std::move(name), rank, std::move(members)),
      world_(world),
      name_id_(world.recorder().intern(this->name())),
      tracker_(world.recorder()) {}

NcclCommunicator::~NcclCommunicator() {
  if (handle_ && !handle_->stopped() && !registered_.empty() && handle_->state() == ncclSuccess)
    for (void* r : registered_) ncclCommDeregister(handle_->get(), r);
}

void NcclCommunicator::connect(const ncclUniqueId& id, const std::string& context, bool registers) {
  registers_ = registers;
  handle_.emplace(id, size(), rank(), name(), [this] { return world_.timeout(); });
  const ncclResult_t result = handle_->settle();
  if (result == ncclSuccess) return;
  if (result == ncclInProgress)
    fail(std::make_exception_ptr(TimeoutError(
        fmt::format("{}: not all members joined the NCCL communicator within {:.3f} s. A rank has "
                    "not reached this point (see its own output), lists its groups in another "
                    "order, or cannot be reached: NCCL_SOCKET_IFNAME must name an interface over "
                    "which the hosts reach each other (lo if all ranks are on one host). Set "
                    "NCCL_DEBUG=INFO on all ranks to see how far each got",
                    who(), seconds(world_.timeout())))));
  fail(std::make_exception_ptr(CommError(fmt::format("{}: the NCCL communicator could not be created: {}{}",
                                                     who(), describe(result, handle_->get()), context))));
}

void NcclCommunicator::all_reduce(void* data, int64_t count, DType dtype, ReduceOp op, DeviceStream stream) {
  check_count(name(), CallKind::AllReduce, count);
  Request r{this, {.kind = CallKind::AllReduce, .dtype = dtype, .op = op, .count = count}, {}, stream};
  if (size() > 1 && count > 0)
    r.operations = {
        {.kind = Kind::AllReduce, .from = data, .to = data, .count = count, .dtype = dtype, .op = op}};
  submit(std::move(r));
}

void NcclCommunicator::all_gather(const void* send, void* recv, int64_t count_per_rank, DType dtype,
                                  DeviceStream stream) {
  check_count(name(), CallKind::AllGather, count_per_rank);
  Request r{this, {.kind = CallKind::AllGather, .dtype = dtype, .count = count_per_rank}, {}, stream};
  if (count_per_rank > 0)
    r.operations = {{.kind = size() > 1 ? Kind::AllGather : Kind::Copy,
                     .from = send,
                     .to = recv,
                     .count = count_per_rank,
                     .dtype = dtype}};
  submit(std::move(r));
}

void NcclCommunicator::reduce_scatter(const void* send, void* recv, int64_t count_per_rank, DType dtype,
                                      ReduceOp op, DeviceStream stream) {
  check_count(name(), CallKind::ReduceScatter, count_per_rank);
  Request r{
      this, {.kind = CallKind::ReduceScatter, .dtype = dtype, .op = op, .count = count_per_rank}, {}, stream};
  if (count_per_rank > 0)
    r.operations = {{.kind = size() > 1 ? Kind::ReduceScatter : Kind::Copy,
                     .from = send,
                     .to = recv,
                     .count = count_per_rank,
                     .dtype = dtype,
                     .op = op}};
  submit(std::move(r));
}

void NcclCommunicator::all_to_all(const void* send, void* recv, int64_t count_per_rank, DType dtype,
                                  DeviceStream stream) {
  check_count(name(), CallKind::AllToAll, count_per_rank);
  Request r{this, {.kind = CallKind::AllToAll, .dtype = dtype, .count = count_per_rank}, {}, stream};
  if (count_per_rank > 0) r.operations = even_exchange(send, recv, count_per_rank, dtype, rank(), size());
  submit(std::move(r));
}

void NcclCommunicator::all_to_all_v(const Exchange& exchange, DType dtype, DeviceStream stream) {
  check_ranges(name(), size(), "send", exchange.send_offsets, exchange.send_counts);
  check_ranges(name(), size(), "recv", exchange.recv_offsets, exchange.recv_counts);
  throw_if_dead();
  const Call call{.kind = CallKind::AllToAllV, .dtype = dtype};
  const auto me = static_cast<size_t>(rank());
  const int64_t count = exchange.send_counts[me], expected = exchange.recv_counts[me];
  if (count != expected) {
    const base::RankId self = members()[me];
    fail(std::make_exception_ptr(
        MismatchError(describe_count_mismatch(call, name(), self, count, self, expected))));
  }
  submit({this, call, uneven_exchange(exchange, dtype, rank(), size()), stream});
}

void NcclCommunicator::broadcast(void* data, int64_t count, DType dtype, int root, DeviceStream stream) {
  check_count(name(), CallKind::Broadcast, count);
  check_member(name(), size(), CallKind::Broadcast, root);
  Request r{this, {.kind = CallKind::Broadcast, .dtype = dtype, .peer = root, .count = count}, {}, stream};
  if (size() > 1 && count > 0)
    r.operations = {
        {.kind = Kind::Broadcast, .from = data, .to = data, .count = count, .dtype = dtype, .peer = root}};
  submit(std::move(r));
}

void NcclCommunicator::send(const void* data, int64_t count, DType dtype, int peer, DeviceStream stream) {
  check_count(name(), CallKind::Send, count);
  check_member(name(), size(), CallKind::Send, peer);
  QUINTET_CHECK(peer != rank(), "send on '{}': member {} sends to itself", name(), peer);
  Request r{this, {.kind = CallKind::Send, .dtype = dtype, .peer = peer, .count = count}, {}, stream};
  if (count > 0)
    r.operations = {{.kind = Kind::Send, .from = data, .count = count, .dtype = dtype, .peer = peer}};
  submit(std::move(r));
}

void NcclCommunicator::recv(void* data, int64_t count, DType dtype, int peer, DeviceStream stream) {
  check_count(name(), CallKind::Recv, count);
  check_member(name(), size(), CallKind::Recv, peer);
  QUINTET_CHECK(peer != rank(), "recv on '{}': member {} receives from itself", name(), peer);
  Request r{this, {.kind = CallKind::Recv, .dtype = dtype, .peer = peer, .count = count}, {}, stream};
  if (count > 0)
    r.operations = {{.kind = Kind::Recv, .to = data, .count = count, .dtype = dtype, .peer = peer}};
  submit(std::move(r));
}

void NcclCommunicator::register_memory(void* data, int64_t bytes) {
  throw_if_dead();
  if (!registers_ || bytes == 0) return;
  void* registration = nullptr;
  ncclResult_t result = ncclCommRegister(handle_->get(), data, static_cast<size_t>(bytes), &registration);
  if (result == ncclInProgress) result = handle_->settle();
  if (result != ncclSuccess)
    fail(fmt::format("registering {} bytes (NCCL_LOCAL_REGISTER=0 on all ranks disables it)", bytes), result);
  if (registration != nullptr) registered_.push_back(registration);
}

void NcclCommunicator::check() {
  throw_if_dead();
  if (!handle_) return;
  const ncclResult_t state = handle_->state();
  if (state != ncclSuccess && state != ncclInProgress) fail("work on the device", state);
  const Tracker::Pending* oldest = nullptr;
  try {
    oldest = tracker_.oldest();
  } catch (const CommError& e) {
    fail(std::make_exception_ptr(CommError(fmt::format("{}: {}", who(), e.what()))));
  }
  if (oldest == nullptr || base::now_ns() - oldest->since_ns <= world_.timeout().count()) return;
  fail(std::make_exception_ptr(TimeoutError(fmt::format(
      "{}: {} was enqueued {:.3f} s ago and has not finished. A member has not reached it or waits in "
      "another call. The last calls here:\n{}",
      who(), comm::describe(oldest->call), seconds(world_.timeout()), world_.recorder().describe(8)))));
}

void NcclCommunicator::abort(const std::string& reason) {
  if (!failed_)
    failed_ = std::make_exception_ptr(AbortedError(fmt::format("{} was aborted: {}", who(), reason)));
  if (handle_) handle_->stop();
}

void NcclCommunicator::throw_if_dead() const {
  if (failed_) std::rethrow_exception(failed_);
}

std::string NcclCommunicator::who() const {
  return fmt::format("rank {} on device communicator '{}' {}", world_.rank(), name(),
                     members_text(members()));
}

void NcclCommunicator::fail(std::exception_ptr why) {
  failed_ = std::move(why);
  if (handle_) handle_->stop();
  std::rethrow_exception(failed_);
}

void NcclCommunicator::fail(const std::string& doing, ncclResult_t result) {
  fail(std::make_exception_ptr(
      CommError(fmt::format("{}: {} failed: {}", who(), doing, describe(result, handle_->get())))));
}

NcclCommunicator::Entered NcclCommunicator::enter(Call call) {
  throw_if_dead();
  call.sequence = next_sequence_++;
  count_call(call);
  return {call, world_.recorder().enter(name_id_, call)};
}

void NcclCommunicator::track(const Entered& entered, DeviceStream stream) {
  if (handle_)
    tracker_.add(entered.call, entered.ticket, stream);
  else
    world_.recorder().leave(entered.ticket);
}

void NcclCommunicator::settle(const Call& call) {
  const ncclResult_t result = handle_->settle();
  if (result == ncclSuccess) return;
  if (result == ncclInProgress)
    fail(std::make_exception_ptr(TimeoutError(
        fmt::format("{}: {} could not be launched within {:.3f} s: NCCL connects to a member at the first "
                    "message, and one has not arrived. The last calls here:\n{}",
                    who(), comm::describe(call), seconds(world_.timeout()), world_.recorder().describe(8)))));
  fail(comm::describe(call), result);
}

void NcclCommunicator::submit(Request request) {
  throw_if_dead();
  if (std::vector<Request>* group = open_group())
    group->push_back(std::move(request));
  else
    issue({&request, 1});
}

}  // namespace quintet::comm::nccl
