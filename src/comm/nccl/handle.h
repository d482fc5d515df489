// One NCCL communicator from its start to its end, none of which can hang this rank.
#pragma once

#include <nccl.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

namespace quintet::comm::nccl {

class Handle {
 public:
  // Starts the creation, which needs all members, and returns; state() tells when it is done. `name` is shown
  // in NCCL's own messages. A failure to start is kept and told by state().
  Handle(const ncclUniqueId& id, int size, int rank, const std::string& name,
         std::function<std::chrono::nanoseconds()> timeout);
  // Finalises and destroys, within the timeout; aborts instead when something went wrong or an exception
  // unwinds. Graphs that hold calls must be gone by now: NCCL waits for them.
  ~Handle();
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  ncclComm_t get() const { return comm_; }
  // ncclInProgress while NCCL is still working on the last thing it was asked for, else how that went, or an
  // error that has struck since.
  ncclResult_t state() const;
  // Waits while state() is ncclInProgress, up to the timeout, and returns the last state.
  ncclResult_t settle() const;

  // Stops what runs on the device and gives everything back, from a thread of its own: NCCL does not return
  // before graphs that hold its calls are destroyed, and those belong to the caller. get() is void from now
  // on.
  void stop();
  bool stopped() const { return stopped_; }

 private:
  void destroy();

  const std::function<std::chrono::nanoseconds()> timeout_;
  const std::shared_ptr<const std::string> name_;  // NCCL keeps a pointer into it to the very end
  const int exceptions_at_start_;
  ncclComm_t comm_ = nullptr;
  ncclResult_t started_ = ncclSuccess;
  bool stopped_ = false;
  std::thread stopping_;
  std::shared_ptr<std::atomic<bool>> stop_done_;
};

}  // namespace quintet::comm::nccl
