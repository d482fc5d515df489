#include "comm/mpi/transfer.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <thread>

namespace quintet::comm::mpi {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::nanoseconds;

// 15 bits, the minimum that MPI guarantees for tags. Send and recv of one message have equal digests.
// `bytes`: the total size, if the two sides of a message state it independently.
int digest(const Call& call, int64_t bytes = 0) {
  const bool pair = call.kind == CallKind::Send || call.kind == CallKind::Recv;
  uint64_t x = static_cast<uint64_t>(pair ? CallKind::Send : call.kind);
  for (const uint64_t part : {static_cast<uint64_t>(call.dtype), static_cast<uint64_t>(call.op),
                              static_cast<uint64_t>(pair ? 0 : call.peer + 1),
                              static_cast<uint64_t>(call.count), static_cast<uint64_t>(bytes)})
    x = (x ^ (x >> 29)) * 0x9E3779B97F4A7C15u + part;
  x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93u;
  return static_cast<int>(x >> 49);
}

// Yields the core first; after a while, sleeps between polls, so that an idle communication thread leaves its
// core to computation.
class Backoff {
 public:
  void reset() { looks_ = 0; }
  // Returns true if it slept.
  bool pause() {
    if (looks_++ < kLooks) {
      sched_yield();
      return false;
    }
    std::this_thread::sleep_for(microseconds(std::min(10 + (looks_ - kLooks), 50)));
    return true;
  }

 private:
  static constexpr int kLooks = 2000;
  int looks_ = 0;
};

}  // namespace

void check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw CommError(fmt::format("{}: {}", what, std::string_view(text, static_cast<size_t>(length))));
}

Transfer::Transfer(const Channel& channel, const Call& call)
    : channel_(channel), call_(call), tag_(digest(call)) {}

Transfer::~Transfer() {
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    if (expected_[i].peer >= 0) MPI_Cancel(&requests_[i]);
    MPI_Request_free(&requests_[i]);
  }
}

void Transfer::start_send(const void* data, int64_t bytes, int peer, int tag) {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, channel_.comm, &request), "MPI_Isend");
  requests_.push_back(request);
  expected_.push_back({});
}

void Transfer::start_recv(void* data, int64_t bytes, int peer, int tag) {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, peer, MPI_ANY_TAG, channel_.comm, &request),
        "MPI_Irecv");
  requests_.push_back(request);
  expected_.push_back({peer, tag, bytes});
}

void Transfer::send(const void* data, int64_t bytes, int peer) {
  for (int64_t at = 0; at < bytes; at += kMaxMessage)
    start_send(static_cast<const char*>(data) + at, std::min(kMaxMessage, bytes - at), peer, tag_);
}

void Transfer::recv(void* data, int64_t bytes, int peer) {
  for (int64_t at = 0; at < bytes; at += kMaxMessage)
    start_recv(static_cast<char*>(data) + at, std::min(kMaxMessage, bytes - at), peer, tag_);
}

void Transfer::send_piece(const void* data, int64_t bytes, int64_t p, int peer) {
  if (p >= pieces(bytes)) return;
  const int64_t at = p * kMaxMessage;
  start_send(static_cast<const char*>(data) + at, std::min(kMaxMessage, bytes - at), peer,
             digest(call_, bytes));
}

void Transfer::recv_piece(void* data, int64_t bytes, int64_t p, int peer) {
  if (p >= pieces(bytes)) return;
  const int64_t at = p * kMaxMessage;
  start_recv(static_cast<char*>(data) + at, std::min(kMaxMessage, bytes - at), peer, digest(call_, bytes));
}

void Transfer::signal(int peer) { start_send(nullptr, 0, peer, tag_); }

void Transfer::await_signal(int peer) { start_recv(nullptr, 0, peer, tag_); }

void Transfer::wait_oldest(size_t count) {
  const nanoseconds timeout = channel_.timeout();
  Backoff backoff;
  Clock::time_point last_progress{}, last_look{};  // set once we sleep: the fast path reads no clock
  done_.resize(count);
  statuses_.resize(count);
  for (size_t left = count; left > 0;) {
    int finished = 0;
    const int code =
        MPI_Testsome(static_cast<int>(count), requests_.data(), &finished, done_.data(), statuses_.data());
    if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) check(code, "MPI_Testsome");
    if (finished == MPI_UNDEFINED) break;
    for (int i = 0; i < finished; ++i) {
      MPI_Status& status = statuses_[static_cast<size_t>(i)];
      if (code == MPI_SUCCESS) status.MPI_ERROR = MPI_SUCCESS;
      check_arrival(expected_[static_cast<size_t>(done_[static_cast<size_t>(i)])], status);
    }
    left -= static_cast<size_t>(finished);
    if (finished > 0) {
      backoff.reset();
      last_progress = {};
      continue;
    }
    if (!backoff.pause()) continue;
    const Clock::time_point now = Clock::now();
    if (last_progress == Clock::time_point{}) last_progress = last_look = now;
    if (now - last_progress > timeout) throw_timeout(timeout);
    if (now - last_look > std::chrono::milliseconds(20)) {
      last_look = now;
      channel_.while_waiting();
    }
  }
  requests_.erase(requests_.begin(), requests_.begin() + static_cast<std::ptrdiff_t>(count));
  expected_.erase(expected_.begin(), expected_.begin() + static_cast<std::ptrdiff_t>(count));
}

void Transfer::check_arrival(const Expected& expected, const MPI_Status& status) {
  int error_class = MPI_SUCCESS;
  if (status.MPI_ERROR != MPI_SUCCESS) {
    MPI_Error_class(status.MPI_ERROR, &error_class);
    if (error_class != MPI_ERR_TRUNCATE) check(status.MPI_ERROR, "a transfer");
  }
  if (expected.peer < 0) return;
  int bytes = 0;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  if (error_class == MPI_SUCCESS && status.MPI_TAG == expected.tag && bytes == expected.bytes) return;
  throw MismatchError(fmt::format(
      "{}: in {} a message of {} bytes arrived from member {} where one of {} bytes{} was expected: the "
      "members {}\n{}",
      channel_.who, describe(call_), error_class == MPI_ERR_TRUNCATE ? "more" : fmt::format("{}", bytes),
      expected.peer, expected.bytes, status.MPI_TAG == expected.tag ? "" : " of this call",
      call_.kind == CallKind::AllToAllV ? "issue different calls or disagree about their counts"
                                        : "issue different calls",
      channel_.ask_members()));
}

void Transfer::throw_timeout(nanoseconds waited) {
  throw TimeoutError(fmt::format("{} waited {:.3f} s in {}; the members:\n{}", channel_.who,
                                 std::chrono::duration<double>(waited).count(), describe(call_),
                                 channel_.ask_members()));
}

}  // namespace quintet::comm::mpi
