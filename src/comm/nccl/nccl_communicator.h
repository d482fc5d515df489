// A DeviceCommunicator over NCCL, or over plain copies for a group of one.
#pragma once

#include <exception>
#include <optional>
#include <vector>

#include "comm/device_communicator.h"
#include "comm/nccl/handle.h"
#include "comm/nccl/operation.h"
#include "comm/nccl/tracker.h"

namespace quintet::comm::nccl {

class NcclCommunicator;

// One call of the interface, as primitive operations.
struct Request {
  NcclCommunicator* communicator = nullptr;
  Call call;
  std::vector<Operation> operations;
  DeviceStream stream = nullptr;
};

// Enqueues the requests of one thread together, in one launch. Throws the first failure.
void issue(std::span<const Request> requests);

class NcclCommunicator final : public DeviceCommunicator {
 public:
  NcclCommunicator(World& world, std::string name, int rank, std::vector<base::RankId> members);
  ~NcclCommunicator() override;

  // Joins the members of `id`; called once, before any other call, if size() > 1. The message of an NCCL
  // failure ends with `context`, which may be empty. `registers`: memory can be registered, see
  // register_memory().
  void connect(const ncclUniqueId& id, const std::string& context, bool registers);

  void all_reduce(void* data, int64_t count, base::DType dtype, ReduceOp op, DeviceStream stream) override;
  void all_gather(const void* send, void* recv, int64_t count_per_rank, base::DType dtype,
                  DeviceStream stream) override;
  void reduce_scatter(const void* send, void* recv, int64_t count_per_rank, base::DType dtype, ReduceOp op,
                      DeviceStream stream) override;
  void all_to_all(const void* send, void* recv, int64_t count_per_rank, base::DType dtype,
                  DeviceStream stream) override;
  void all_to_all_v(const Exchange& exchange, base::DType dtype, DeviceStream stream) override;
  void broadcast(void* data, int64_t count, base::DType dtype, int root, DeviceStream stream) override;
  void send(const void* data, int64_t count, base::DType dtype, int peer, DeviceStream stream) override;
  void recv(void* data, int64_t count, base::DType dtype, int peer, DeviceStream stream) override;
  void register_memory(void* data, int64_t bytes) override;
  void check() override;
  void abort(const std::string& reason) override;

 private:
  friend void issue(std::span<const Request> requests);

  struct Entered {
    Call call;
    uint64_t ticket = 0;
  };
  // Assigns the call its number and its entry in the record; throws if the communicator is dead.
  Entered enter(Call call);
  void track(const Entered& entered, DeviceStream stream);
  // Waits until NCCL has launched what was submitted; throws any failure.
  void settle(const Call& call);
  // Kills the communicator and throws.
  [[noreturn]] void fail(std::exception_ptr why);
  [[noreturn]] void fail(const std::string& doing, ncclResult_t result);

  void submit(Request request);
  void throw_if_dead() const;
  std::string who() const;

  World& world_;
  const int name_id_;
  std::optional<Handle> handle_;  // none in a group of one
  bool registers_ = false;
  std::vector<void*> registered_;
  Tracker tracker_;
  uint64_t next_sequence_ = 0;
  std::exception_ptr failed_;
};

}  // namespace quintet::comm::nccl
