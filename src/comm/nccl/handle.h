// One NCCL communicator from creation to destruction; no operation can hang this rank.
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
  // Starts the creation, which needs all members, and returns; state() shows when it is done. `name` appears
  // in NCCL's own messages. A failure to start is kept and reported by state().
  Handle(const ncclUniqueId& id, int size, int rank, const std::string& name,
         std::function<std::chrono::nanoseconds()> timeout);
  // Finalises and destroys within the timeout; aborts instead after a failure or while an exception unwinds.
  // Graphs that contain calls must be destroyed first, because NCCL waits for them.
  ~Handle();
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  ncclComm_t get() const { return comm_; }
  // ncclInProgress while NCCL is still working on the last request; otherwise its result, or an error that
  // has occurred since.
  ncclResult_t state() const;
  // Waits while state() is ncclInProgress, up to the timeout, and returns the last state.
  ncclResult_t settle() const;

  // Stops what runs on the device and releases everything, from a separate thread: NCCL does not return
  // before graphs that contain its calls are destroyed, and those belong to the caller. get() is invalid from
  // then on.
  void stop();
  bool stopped() const { return stopped_; }

 private:
  void destroy();

  const std::function<std::chrono::nanoseconds()> timeout_;
  const std::shared_ptr<const std::string> name_;  // NCCL keeps a pointer into it until destruction
  const int exceptions_at_start_;
  ncclComm_t comm_ = nullptr;
  ncclResult_t started_ = ncclSuccess;
  bool stopped_ = false;
  std::thread stopping_;
  std::shared_ptr<std::atomic<bool>> stop_done_;
};

}  // namespace quintet::comm::nccl
