// The messages of one call in flight, and the wait for them. MPI is only the transport: the order of messages
// and all arithmetic are ours, so results are bit-equal to the local backend.
//
// Every message carries a digest of its call as its tag and is received with any tag. MPI preserves the order
// of messages between two members of a communicator, so an unexpected digest or size is a mismatch of calls,
// detected without extra traffic.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace quintet::comm::mpi {

// Throws a CommError with MPI's own message if code is an error.
void check(int code, const char* what);

// What a transfer needs to know about its communicator.
struct Channel {
  MPI_Comm comm = MPI_COMM_NULL;
  std::function<std::chrono::nanoseconds()> timeout;
  // Called periodically while waiting, so that this rank answers status queries.
  std::function<void()> while_waiting;
  // One line per member: what each is doing now. Queries over the network; takes seconds if some do not
  // answer.
  std::function<std::string()> ask_members;
  std::string who;  // "rank 3 on communicator 'tp' [1,3]"
};

class Transfer {
 public:
  // Longer messages are split: counts stay far below 2^31, and each piece that arrives shows the waiting side
  // that the transfer is making progress.
  static constexpr int64_t kMaxMessage = 4 << 20;

  Transfer(const Channel& channel, const Call& call);
  // Requests left over by an exception are cancelled as far as MPI allows.
  ~Transfer();
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  // Start to move bytes; zero bytes move nothing.
  void send(const void* data, int64_t bytes, int peer);
  void recv(void* data, int64_t bytes, int peer);
  // A message whose two sides state its size independently, sent one of pieces(bytes) pieces at a time, in
  // order; past the last piece nothing moves. The size is part of the digest, and zero bytes are one empty
  // message, so every difference between the sides is a mismatch here and not in a later call.
  static int64_t pieces(int64_t bytes) {
    return std::max<int64_t>(1, (bytes + kMaxMessage - 1) / kMaxMessage);
  }
  void send_piece(const void* data, int64_t bytes, int64_t p, int peer);
  void recv_piece(void* data, int64_t bytes, int64_t p, int peer);
  // An empty message, for a barrier.
  void signal(int peer);
  void await_signal(int peer);

  // Wait until the oldest `count` requests (wait_all: all) are done, and remove them.
  size_t started() const { return requests_.size(); }
  void wait_oldest(size_t count);
  void wait_all() { wait_oldest(requests_.size()); }

 private:
  struct Expected {
    int peer = -1;  // -1: a send
    int tag = 0;
    int64_t bytes = 0;
  };
  void start_send(const void* data, int64_t bytes, int peer, int tag);
  void start_recv(void* data, int64_t bytes, int peer, int tag);
  void check_arrival(const Expected& expected, const MPI_Status& status);
  [[noreturn]] void throw_timeout(std::chrono::nanoseconds waited);

  const Channel& channel_;
  const Call call_;
  const int tag_;
  std::vector<MPI_Request> requests_;
  std::vector<Expected> expected_;
  std::vector<int> done_;
  std::vector<MPI_Status> statuses_;
};

}  // namespace quintet::comm::mpi
