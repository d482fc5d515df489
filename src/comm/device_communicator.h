// Communication between ranks from GPU to GPU: communicator.h for device memory and streams. Defined by nccl/
// in builds with CUDA, otherwise by nccl_missing/, whose functions throw a UserError that says what to
// install.
//
// Calls. All calls only enqueue: they return at once, and the work happens in stream order. Pointers are
// device memory of the communicator's device, which must be the calling thread's current device. Buffers may
// be reused by later work on the same stream. Calls may be made while the stream is being captured into a
// graph (capture mode thread-local or relaxed, since the library launches from its own threads); each replay
// then executes them. A communicator is used by one thread at a time. All members issue the same calls on a
// communicator in the same order with the same count, type and operation. Unlike on the host, calls are not
// compared: a difference shows up as a timeout or as wrong results, unless compare_calls() is used. A member
// may use several streams on one communicator; its calls execute in the order of issue. Calls on different
// communicators that share ranks must be issued in one global order.
//
// Determinism. The order of a reduction is NCCL's: it depends on the size, the topology and the NCCL version,
// not on timing, so the same job on the same machines gives the same bits on every run and on every member,
// but not the host's bits. bf16 and f16 sums are rounded at every addition. Integer sums wrap. Max is NCCL's
// too: a NaN on only some members may be lost (the host's Max propagates it).
//
// Failure. Device-side failures are detected late: check() throws them. From then on the communicator is
// dead: its work on the device has been stopped, and every further call throws the same error.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/ids.h"
#include "comm/call_order.h"
#include "comm/communicator.h"

struct CUstream_st;  // what cudaStream_t points to

namespace quintet::comm {

using DeviceStream = CUstream_st*;

class DeviceCommunicator {
 public:
  virtual ~DeviceCommunicator() = default;
  DeviceCommunicator(const DeviceCommunicator&) = delete;
  DeviceCommunicator& operator=(const DeviceCommunicator&) = delete;

  int rank() const { return rank_; }  // this rank's index among the members
  int size() const { return static_cast<int>(members_.size()); }
  const std::vector<base::RankId>& members() const { return members_; }
  const std::string& name() const { return name_; }
  const CallOrder& calls() const { return calls_; }  // made so far, including captured ones

  // Semantics, counts and permitted overlaps match Communicator's calls of the same name.
  // A group of one copies, or does nothing if source and target are the same.
  virtual void all_reduce(void* data, int64_t count, base::DType dtype, ReduceOp op, DeviceStream stream) = 0;
  virtual void all_gather(const void* send, void* recv, int64_t count_per_rank, base::DType dtype,
                          DeviceStream stream) = 0;
  virtual void reduce_scatter(const void* send, void* recv, int64_t count_per_rank, base::DType dtype,
                              ReduceOp op, DeviceStream stream) = 0;
  virtual void all_to_all(const void* send, void* recv, int64_t count_per_rank, base::DType dtype,
                          DeviceStream stream) = 0;
  // Counts and offsets are in host memory and are read before the call returns. Only a member's own piece is
  // compared (MismatchError).
  virtual void all_to_all_v(const Exchange& exchange, base::DType dtype, DeviceStream stream) = 0;
  virtual void broadcast(void* data, int64_t count, base::DType dtype, int root, DeviceStream stream) = 0;
  // A send may block its stream until the peer is in the matching recv. Members that send to each other at
  // the same time must put both calls into one GroupedCalls.
  virtual void send(const void* data, int64_t count, base::DType dtype, int peer, DeviceStream stream) = 0;
  virtual void recv(void* data, int64_t count, base::DType dtype, int peer, DeviceStream stream) = 0;

  // Lets transports access [data, data + bytes) without staging copies until the communicator is destroyed;
  // the memory must live that long. Collective over the members: all register or none. Best before the first
  // call.
  //
  // Worthwhile for calls that are launched individually and reach a peer over the network, or over NVLink
  // between processes; NCCL itself registers the buffers of calls in a captured graph. Memory from cudaMalloc
  // suffices. (Reductions inside NVLink switches would need memory from ncclMemAlloc, which is mapped with
  // multicast granularity.) No-op, on all members, in a group of one, in a group whose members share a GPU
  // (their data is staged through the host anyway), and with NCCL before 2.19, which has no registration.
  virtual void register_memory(void* data, int64_t bytes) = 0;

  // Throws any failure since the last check: a CommError with NCCL's message, or a TimeoutError if a call
  // that was enqueued outside of a capture has not finished within the world's timeout. Does not wait. Costs
  // about a microsecond, so call it wherever the host waits for the device.
  virtual void check() = 0;

  // Stops this rank's work on the device, so that its stream proceeds (with undefined buffer contents), and
  // kills the communicator: further calls throw an AbortedError with the reason. Peers are not notified:
  // their own timeouts, or World::abort, release them.
  virtual void abort(const std::string& reason) = 0;

 protected:
  DeviceCommunicator(std::string name, int rank, std::vector<base::RankId> members)
      : name_(std::move(name)), rank_(rank), members_(std::move(members)) {}
  void count_call(const Call& call) { calls_.add(call, rank_, size()); }

 private:
  CallOrder calls_;
  const std::string name_;
  const int rank_;
  const std::vector<base::RankId> members_;
};

// Submits the calls that this thread makes between construction and end() together: one launch, in which
// sends and receives progress concurrently. They may use several communicators and streams and must not
// depend on each other. Nothing is enqueued before end(), which throws any failure; a group destroyed by an
// unwinding exception is dropped as far as the library allows. At most one per thread at a time.
class GroupedCalls {
 public:
  GroupedCalls();
  ~GroupedCalls();
  GroupedCalls(const GroupedCalls&) = delete;
  GroupedCalls& operator=(const GroupedCalls&) = delete;
  void end();

 private:
  bool open_ = true;
};

struct DeviceGroup {
  std::vector<base::RankId> members;  // distinct, including this rank; their order is the member order
  std::string name;                   // for messages; empty: the list of members
};

using DeviceCommunicators = std::vector<std::unique_ptr<DeviceCommunicator>>;

// Creates one communicator for each of `groups`, which are the groups of this rank. All ranks list theirs in
// one global sorted order, and each group is created by its members only, within the world's timeout.
// `device` is the index of the GPU this rank uses. Identities are exchanged over world.world(), which must
// not be in use meanwhile, and the call is collective over the world: ranks without a group call it too. Two
// ranks of one process (a local world) need two GPUs; processes may share one if each has its own
// NCCL_HOSTID. The communicators must not outlive the world and are destroyed in this order on every rank;
// while an exception unwinds they are aborted instead, which waits for nobody. Graphs that contain calls must
// be destroyed before the communicators, also after an abort, because NCCL waits for them. Memory must be
// freed after the communicators: freeing waits for the device, which may hang in a call until its
// communicator is destroyed.
DeviceCommunicators make_device_communicators(const std::vector<DeviceGroup>& groups, World& world,
                                              int device);

// Waits until done() (for example, that an event has completed) while checking the communicators and whether
// another rank has ended the job. A failure or the world's timeout aborts all communicators and throws. The
// message of a timeout lists the calls this rank was inside; every message ends with the result of `where`,
// if given: how far the device got, which for replayed graphs only the caller can know. The waiting thread
// spins for some tens of microseconds and then sleeps between polls, at most 0.2 ms.
void wait_for_device(const std::function<bool()>& done, const DeviceCommunicators& communicators,
                     World& world, const std::function<std::string()>& where = {});

// Throws MismatchError unless the members of each communicator have made the same calls on it so far.
// Collective over the world, using world.world(): all ranks call it at the same point, best after enqueuing
// work for the first time and before waiting for it.
void compare_calls(const DeviceCommunicators& communicators, World& world);

// Whether this build has the device backend.
bool device_communication_available();

}  // namespace quintet::comm
