#include "comm/communicator.h"

#include <fmt/format.h>

#include <cstring>
#include <exception>
#include <type_traits>

#include "base/clock.h"
#include "base/error.h"
#include "comm/arguments.h"

namespace quintet::comm {

const char* to_string(ReduceOp op) { return op == ReduceOp::Sum ? "sum" : "max"; }

// Marks the communicator busy and the call entered, and on normal exit marks it left. A call that throws
// stays "inside" in the record, which shows where the rank failed.
class Communicator::Open {
 public:
  Open(Communicator& c, Call call) : c_(c), call_(call) {
    QUINTET_CHECK(!c.busy_.exchange(true, std::memory_order_acquire),
                  "rank {}: two threads are inside communicator '{}' at once", c.world_rank(), c.name_);
    if (c.failed_) {
      c.busy_.store(false, std::memory_order_release);
      std::rethrow_exception(c.failed_);
    }
    call_.sequence = c.next_sequence_++;
    ticket_ = c.recorder_.enter(c.name_id_, call_);
  }
  ~Open() { c_.busy_.store(false, std::memory_order_release); }
  Open(const Open&) = delete;
  Open& operator=(const Open&) = delete;

  const Call& call() const { return call_; }
  void done() { c_.recorder_.leave(ticket_); }

 private:
  Communicator& c_;
  Call call_;
  uint64_t ticket_ = 0;
};

namespace {

void check_reducible(const Communicator& c, CallKind kind, base::DType dtype) {
  QUINTET_CHECK(dtype != base::DType::I16 && dtype != base::DType::E4M3 && dtype != base::DType::E5M2,
                "{} on '{}': {} can be moved but not reduced; reduce in f32 or bf16", to_string(kind),
                c.name(), base::to_string(dtype));
}

void copy_unless_same(void* to, const void* from, int64_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace

Communicator::Communicator(Recorder& recorder, std::string name, int rank, std::vector<base::RankId> members)
    : recorder_(recorder),
      name_(std::move(name)),
      name_id_(recorder.intern(name_)),
      rank_(rank),
      members_(std::move(members)) {}

template <class Body>
void Communicator::run(const Call& call, Body&& body) {
  Open open(*this, call);
  const int64_t start = base::now_ns();
  int64_t bytes = message_bytes(call, size());
  try {
    if constexpr (std::is_void_v<decltype(body(open.call()))>)
      body(open.call());
    else
      bytes = body(open.call());
  } catch (const CommError&) {
    failed_ = std::current_exception();
    throw;
  }
  counter_.add(call.kind, bytes, base::now_ns() - start);
  open.done();
}

void Communicator::all_reduce(void* data, int64_t count, base::DType dtype, ReduceOp op) {
  check_count(name_, CallKind::AllReduce, count);
  check_reducible(*this, CallKind::AllReduce, dtype);
  run({.kind = CallKind::AllReduce, .dtype = dtype, .op = op, .count = count}, [&](const Call& call) {
    if (size() > 1) do_all_reduce(call, data);
  });
}

void Communicator::all_gather(const void* send, void* recv, int64_t count_per_rank, base::DType dtype) {
  check_count(name_, CallKind::AllGather, count_per_rank);
  run({.kind = CallKind::AllGather, .dtype = dtype, .count = count_per_rank}, [&](const Call& call) {
    if (size() > 1)
      do_all_gather(call, send, recv);
    else
      copy_unless_same(recv, send, count_per_rank * size_of(dtype));
  });
}

void Communicator::reduce_scatter(const void* send, void* recv, int64_t count_per_rank, base::DType dtype,
                                  ReduceOp op) {
  check_count(name_, CallKind::ReduceScatter, count_per_rank);
  check_reducible(*this, CallKind::ReduceScatter, dtype);
  run({.kind = CallKind::ReduceScatter, .dtype = dtype, .op = op, .count = count_per_rank},
      [&](const Call& call) {
        if (size() > 1)
          do_reduce_scatter(call, send, recv);
        else
          copy_unless_same(recv, send, count_per_rank * size_of(dtype));
      });
}

void Communicator::all_to_all(const void* send, void* recv, int64_t count_per_rank, base::DType dtype) {
  check_count(name_, CallKind::AllToAll, count_per_rank);
  run({.kind = CallKind::AllToAll, .dtype = dtype, .count = count_per_rank}, [&](const Call& call) {
    if (size() > 1)
      do_all_to_all(call, send, recv);
    else
      copy_unless_same(recv, send, count_per_rank * size_of(dtype));
  });
}

void Communicator::all_to_all_v(const void* send, std::span<const int64_t> send_offsets,
                                std::span<const int64_t> send_counts, void* recv,
                                std::span<const int64_t> recv_offsets, std::span<const int64_t> recv_counts,
                                base::DType dtype) {
  check_ranges(name_, size(), "send", send_offsets, send_counts);
  check_ranges(name_, size(), "recv", recv_offsets, recv_counts);
  run({.kind = CallKind::AllToAllV, .dtype = dtype}, [&](const Call& call) {
    const Exchange exchange{send, send_offsets, send_counts, recv, recv_offsets, recv_counts};
    if (size() > 1)
      do_all_to_all_v(call, exchange);
    else
      copy_own_piece(call, exchange);
    int64_t sent = 0;
    for (int j = 0; j < size(); ++j)
      if (j != rank_) sent += send_counts[static_cast<size_t>(j)];
    return sent * size_of(dtype);
  });
}

void Communicator::copy_own_piece(const Call& call, const Exchange& exchange) const {
  const auto me = static_cast<size_t>(rank_);
  const int64_t count = exchange.send_counts[me], expected = exchange.recv_counts[me];
  if (count != expected)
    throw MismatchError(describe_count_mismatch(call, name_, world_rank(), count, world_rank(), expected));
  if (count == 0) return;
  const int64_t width = size_of(call.dtype);
  copy_unless_same(static_cast<char*>(exchange.recv) + exchange.recv_offsets[me] * width,
                   static_cast<const char*>(exchange.send) + exchange.send_offsets[me] * width,
                   count * width);
}

void Communicator::broadcast(void* data, int64_t count, base::DType dtype, int root) {
  check_count(name_, CallKind::Broadcast, count);
  check_member(name_, size(), CallKind::Broadcast, root);
  run({.kind = CallKind::Broadcast, .dtype = dtype, .peer = root, .count = count}, [&](const Call& call) {
    if (size() > 1) do_broadcast(call, data);
  });
}

void Communicator::send(const void* data, int64_t count, base::DType dtype, int peer) {
  check_count(name_, CallKind::Send, count);
  check_member(name_, size(), CallKind::Send, peer);
  QUINTET_CHECK(peer != rank_, "send on '{}': member {} sends to itself", name_, peer);
  run({.kind = CallKind::Send, .dtype = dtype, .peer = peer, .count = count},
      [&](const Call& call) { do_send(call, data); });
}

void Communicator::recv(void* data, int64_t count, base::DType dtype, int peer) {
  check_count(name_, CallKind::Recv, count);
  check_member(name_, size(), CallKind::Recv, peer);
  QUINTET_CHECK(peer != rank_, "recv on '{}': member {} receives from itself", name_, peer);
  run({.kind = CallKind::Recv, .dtype = dtype, .peer = peer, .count = count},
      [&](const Call& call) { do_recv(call, data); });
}

void Communicator::barrier() {
  run({.kind = CallKind::Barrier}, [&](const Call& call) {
    if (size() > 1) do_barrier(call);
  });
}

}  // namespace quintet::comm
