// Communication between ranks: one interface with the backends local/ (ranks as threads of one process) and
// mpi/.
//
// Calls. All calls block until this rank's part is done and its buffers may be reused. They work on raw host
// memory. Different communicators may be used by different threads of a rank at the same time; one
// communicator by one thread at a time (checked). All members issue the same calls on a communicator in the
// same order with the same count, type and operation (all_to_all_v: the same type; the counts agree pair by
// pair).
//
// Determinism. Every reduction is computed in member order, ((x0 + x1) + x2) + ..., regardless of size,
// slicing and backend: equal inputs give equal bits on every run, member and backend. bf16 and f16 sums are
// accumulated in f32 and rounded once at the end. Integer sums wrap. Max propagates NaN.
//
// Failure. A call that cannot complete throws a CommError and leaves the communicator dead: every further
// call on it throws the same error. The kinds are in errors.h.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/ids.h"
#include "comm/call_totals.h"
#include "comm/errors.h"
#include "comm/recorder.h"

namespace quintet::comm {

enum class ReduceOp : uint8_t { Sum, Max };
const char* to_string(ReduceOp op);

// One member's side of an all_to_all_v, in elements: entry j of each list is for member j.
struct Exchange {
  const void* send = nullptr;
  std::span<const int64_t> send_offsets, send_counts;
  void* recv = nullptr;
  std::span<const int64_t> recv_offsets, recv_counts;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }  // this rank's index among the members
  int size() const { return static_cast<int>(members_.size()); }
  const std::vector<base::RankId>& members() const { return members_; }
  const std::string& name() const { return name_; }
  // This member's calls so far, by kind. Not during a call.
  std::vector<CallTotals> totals() const { return counter_.totals(); }

  // Counts are in elements and may be 0. `count_per_rank` is the piece of one member; the whole is size()
  // pieces. i16 can be moved but not reduced.

  // data := reduction over the members, on all of them.
  void all_reduce(void* data, int64_t count, base::DType dtype, ReduceOp op);
  // recv (whole) := the members' pieces in order. send may be recv + rank * count_per_rank; no other overlap.
  void all_gather(const void* send, void* recv, int64_t count_per_rank, base::DType dtype);
  // recv (piece) := piece `rank` of the reduction of the members' send (whole). recv may be
  // send + rank * count_per_rank; the rest of send is then unspecified afterwards. Otherwise send is kept.
  void reduce_scatter(const void* send, void* recv, int64_t count_per_rank, base::DType dtype, ReduceOp op);
  // Piece j of recv := piece `rank` of member j's send. send and recv do not overlap.
  void all_to_all(const void* send, void* recv, int64_t count_per_rank, base::DType dtype);
  // The same with individual sizes: recv_counts[j] elements at recv + recv_offsets[j] := the
  // send_counts[rank] elements at member j's send + its send_offsets[rank]. send_counts[j] here must equal
  // recv_counts[rank] on member j, also for a member's own piece; a difference is a MismatchError. Counts may
  // be 0, offsets of empty ranges are ignored, and a buffer with only empty ranges may be null. Send ranges
  // may overlap each other; recv ranges overlap neither each other nor a send range. recv is unchanged
  // outside its ranges. Never allocates more than 4 KiB at once, whatever the sizes.
  void all_to_all_v(const void* send, std::span<const int64_t> send_offsets,
                    std::span<const int64_t> send_counts, void* recv, std::span<const int64_t> recv_offsets,
                    std::span<const int64_t> recv_counts, base::DType dtype);
  // data := member root's data.
  void broadcast(void* data, int64_t count, base::DType dtype, int root);
  // A send may block until the peer is in the matching recv: correct programs do not rely on buffering.
  void send(const void* data, int64_t count, base::DType dtype, int peer);
  void recv(void* data, int64_t count, base::DType dtype, int peer);
  void barrier();

 protected:
  Communicator(Recorder& recorder, std::string name, int rank, std::vector<base::RankId> members);

  // Implemented by backends. The arguments are checked, size() > 1, and `call` is recorded and open.
  virtual void do_all_reduce(const Call& call, void* data) = 0;
  virtual void do_all_gather(const Call& call, const void* send, void* recv) = 0;
  virtual void do_reduce_scatter(const Call& call, const void* send, void* recv) = 0;
  virtual void do_all_to_all(const Call& call, const void* send, void* recv) = 0;
  virtual void do_all_to_all_v(const Call& call, const Exchange& exchange) = 0;
  virtual void do_broadcast(const Call& call, void* data) = 0;
  virtual void do_send(const Call& call, const void* data) = 0;
  virtual void do_recv(const Call& call, void* data) = 0;
  virtual void do_barrier(const Call& call) = 0;

  // Copies the piece of an exchange that stays on this member.
  void copy_own_piece(const Call& call, const Exchange& exchange) const;
  base::RankId world_rank() const { return members_[static_cast<size_t>(rank_)]; }

 private:
  class Open;  // one call in progress: recorded, exclusive
  template <class Body>
  void run(const Call& call, Body&& body);

  Recorder& recorder_;
  const std::string name_;
  const int name_id_;
  const int rank_;
  const std::vector<base::RankId> members_;
  CallCounter counter_;
  uint64_t next_sequence_ = 0;
  std::exception_ptr failed_;  // the failure that left the communicator dead
  std::atomic<bool> busy_ = false;
};

// One rank's view of the job.
class World {
 public:
  virtual ~World() = default;
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  virtual base::RankId rank() const = 0;
  virtual int size() const = 0;
  virtual Communicator& world() = 0;  // all ranks

  // Creates a communicator over `members` (distinct ranks including this one; their order is the member
  // order). Collective over the members only. All ranks create their communicators eagerly, in one global
  // sorted order. A group of one is legal; its calls only copy. The same members may be passed again: each
  // call creates a separate channel. The communicator must not outlive the world. `name` appears in messages
  // and defaults to the list of members.
  virtual std::shared_ptr<Communicator> create(const std::vector<base::RankId>& members,
                                               std::string name = {}) = 0;

  // Ends the job, naming this rank: unblocks every waiting rank with an AbortedError (local) or kills it
  // (MPI).
  virtual void abort(const std::string& reason) = 0;
  // Throws AbortedError once another rank has ended the job, for code that waits outside of a call.
  // Practically free.
  virtual void throw_if_aborted() const {}

  // How long a call waits for its peers before it throws a TimeoutError. Applies to calls that start later.
  virtual void set_timeout(std::chrono::nanoseconds timeout) = 0;
  virtual std::chrono::nanoseconds timeout() const = 0;

  virtual Recorder& recorder() = 0;
  // How ranks reach each other and how reductions are computed: "threads, direct".
  virtual std::string transport() const = 0;

 protected:
  World() = default;
};

inline constexpr std::chrono::seconds kDefaultTimeout{300};

}  // namespace quintet::comm
