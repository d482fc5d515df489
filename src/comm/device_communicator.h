// What ranks say to each other from GPU to GPU: communicator.h with device memory and streams. Defined by
// nccl/ in builds with CUDA, else by nccl_missing/, whose functions throw a UserError that says what to
// install.
//
// Calls. All calls only enqueue: they return at once, and the work happens in stream order. Pointers are
// device memory of the communicator's device, which must be the calling thread's current device. Buffers may
// be reused by later work on the same stream. Calls may be made while the stream is being captured into a
// graph (capture mode thread-local or relaxed: the library launches from threads of its own); they are then
// done by each replay. A communicator is used by one thread at a time. All members issue the same calls on a
// communicator in the same order with the same count, type and operation; unlike on the host a call does not
// compare, and a difference shows as a timeout or as wrong results, unless compare_calls() is asked. A member
// may use several streams on one communicator: its calls happen in the order of issue. Calls on different
// communicators that share ranks are issued in one global order.
//
// Bits. The order of a reduction is NCCL's: it depends on the size, the topology and the NCCL version, not on
// timing, so the same job on the same machines gives the same bits on every run and on every member, but not
// the host's bits. bf16 and f16 sums are rounded at every addition. Integer sums wrap. Max is NCCL's too: a
// NaN of some members and not of others may be lost (the host's Max propagates it).
//
// Failure. What goes wrong on the device is known only later: check() throws it. From then on the
// communicator is dead: its work on the device has been stopped and every further call throws the same.
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
  const CallOrder& calls() const { return calls_; }  // made so far, captured ones included

  // Meaning, counts and permitted overlaps are those of Communicator's calls of the same name.
  // A group of one copies, or does nothing where source and target are the same.
  virtual void all_reduce(void* data, int64_t count, base::DType dtype, ReduceOp op, DeviceStream stream) = 0;
  virtual void all_gather(const void* send, void* recv, int64_t count_per_rank, base::DType dtype,
                          DeviceStream stream) = 0;
  virtual void reduce_scatter(const void* send, void* recv, int64_t count_per_rank, base::DType dtype,
                              ReduceOp op, DeviceStream stream) = 0;
  virtual void all_to_all(const void* send, void* recv, int64_t count_per_rank, base::DType dtype,
                          DeviceStream stream) = 0;
  // The counts and offsets lie in host memory and are read before the call returns. Only a member's own piece
  // is compared (MismatchError).
  virtual void all_to_all_v(const Exchange& exchange, base::DType dtype, DeviceStream stream) = 0;
  virtual void broadcast(void* data, int64_t count, base::DType dtype, int root, DeviceStream stream) = 0;
  // A send may hold up its stream until the peer is in the matching recv. Members that send to each other at
  // the same time put both calls into one GroupedCalls.
  virtual void send(const void* data, int64_t count, base::DType dtype, int peer, DeviceStream stream) = 0;
  virtual void recv(void* data, int64_t count, base::DType dtype, int peer, DeviceStream stream) = 0;

  // Lets transports reach [data, data + bytes) without staging copies, until the communicator goes; the
  // memory must live as long. Collective over the members: all register or none. Best before the first call.
  //
  // When it pays: for calls that are launched one by one and reach a peer over the network, or over NVLink
  // between processes; NCCL registers the buffers of calls in a captured graph itself. Memory of cudaMalloc
  // serves these. (Reductions inside NVLink switches would need memory of ncclMemAlloc, which is mapped with
  // the granularity of multicast.) Nothing happens, on all members, in a group of one, in one whose members
  // share a card (their data are staged through the host anyway), and with NCCL before 2.19, which has no
  // registration.
  virtual void register_memory(void* data, int64_t bytes) = 0;

  // Throws what has gone wrong since: a CommError with the library's words, or a TimeoutError when a call
  // that was enqueued outside of a capture is not done within the world's timeout. Does not wait. Costs about
  // a microsecond, so call it wherever the host waits for the device.
  virtual void check() = 0;

  // Stops this rank's work on the device, so that its stream goes on (with whatever the buffers hold), and
  // kills the communicator: further calls throw an AbortedError with the reason. The peers are not told:
  // their own timeouts, or World::abort, free them.
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

// The calls that this thread makes between construction and end() are handed over together: one launch, and
// sends and receives that progress side by side. They may be on several communicators and streams and must
// not depend on each other. Nothing is enqueued before end(), which throws what it meets; a group that an
// exception unwinds is dropped as far as the library can. At most one per thread at a time.
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
  std::vector<base::RankId> members;  // distinct, this rank among them; their order is the member order
  std::string name;                   // for messages; empty: the list of members
};

using DeviceCommunicators = std::vector<std::unique_ptr<DeviceCommunicator>>;

// One communicator for each of `groups`, which are this rank's; all ranks name theirs in one global sorted
// order, and each group is created by its members only, within the world's timeout. `device` is the index of
// the GPU this rank uses. The identities travel over world.world(), which nobody else may use meanwhile, and
// the call is collective over the world: ranks with no group call it too. Two ranks of one process (a local
// world) need two GPUs; processes may share one if each has its own NCCL_HOSTID. The communicators must not
// outlive the world and are destroyed in this order on every rank; while an exception unwinds they are
// aborted instead, which waits for nobody. Graphs that hold calls are destroyed before the communicators,
// also after an abort: NCCL waits for them. Memory is freed after the communicators: freeing waits for the
// device, which may hang in a call until its communicator goes.
DeviceCommunicators make_device_communicators(const std::vector<DeviceGroup>& groups, World& world,
                                              int device);

// Waits until done() (say, that an event has passed) while it checks the communicators and whether another
// rank has ended the job. A failure or the world's timeout aborts all of them and throws; the message of a
// timeout tells what this rank was inside, and every message ends with what `where` says, if given: how far
// the device has come, which only the caller can know of replayed graphs. The waiting thread spins for some
// tens of microseconds and then sleeps between looks, 0.2 ms at most.
void wait_for_device(const std::function<bool()>& done, const DeviceCommunicators& communicators,
                     World& world, const std::function<std::string()>& where = {});

// A MismatchError unless the members of each communicator have made the same calls on it so far. Collective
// over the world, over world.world(): all ranks ask at the same place of their work, best behind what they
// enqueue for the first time and before they wait for it.
void compare_calls(const DeviceCommunicators& communicators, World& world);

// Whether this build has the device backend.
bool device_communication_available();

}  // namespace quintet::comm
