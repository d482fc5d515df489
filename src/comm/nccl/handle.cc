#include "comm/nccl/handle.h"

#include <cuda_runtime_api.h>

#include <exception>

#include "base/clock.h"
#include "comm/backoff.h"

namespace quintet::comm::nccl {
namespace {

// How long an abort may take before its thread is detached. It takes longer only if a graph with calls of the
// communicator still exists.
constexpr int64_t kAbortPatienceNs = 10'000'000'000;

template <class Condition>
bool wait_until(Condition&& condition, int64_t nanoseconds) {
  const int64_t start = base::now_ns();
  Backoff backoff;
  while (!condition()) {
    if (base::now_ns() - start > nanoseconds) return false;
    backoff.pause();
  }
  return true;
}

}  // namespace

Handle::Handle(const ncclUniqueId& id, int size, int rank, const std::string& name,
               std::function<std::chrono::nanoseconds()> timeout)
    : timeout_(std::move(timeout)),
      name_(std::make_shared<const std::string>(name)),
      exceptions_at_start_(std::uncaught_exceptions()) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.commName = name_->c_str();
  started_ = ncclCommInitRankConfig(&comm_, size, id, rank, &config);
}

Handle::~Handle() {
  if (!stopped_) {
    if (std::uncaught_exceptions() > exceptions_at_start_ || comm_ == nullptr)
      stop();
    else
      destroy();
  }
  if (!stopping_.joinable()) return;
  if (wait_until([&] { return stop_done_->load(std::memory_order_acquire); }, kAbortPatienceNs))
    stopping_.join();
  else
    stopping_.detach();
}

void Handle::destroy() {
  // If the communicator is not ready, NCCL would refuse and leave the group open that it starts inside.
  if (settle() != ncclSuccess) return stop();
  ncclResult_t result = ncclCommFinalize(comm_);
  if (result == ncclInProgress) result = settle();
  if (result != ncclSuccess) return stop();
  ncclCommDestroy(comm_);
  comm_ = nullptr;
}

ncclResult_t Handle::state() const {
  if (comm_ == nullptr)
    return started_ == ncclSuccess || started_ == ncclInProgress ? ncclInternalError : started_;
  ncclResult_t result = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &result);
  return asked == ncclSuccess ? result : asked;
}

ncclResult_t Handle::settle() const {
  ncclResult_t result = ncclSuccess;
  wait_until([&] { return (result = state()) != ncclInProgress; }, timeout_().count());
  return result;
}

void Handle::stop() {
  if (stopped_) return;
  stopped_ = true;
  if (comm_ == nullptr) return;
  stop_done_ = std::make_shared<std::atomic<bool>>(false);
  int device = 0;
  const bool known = cudaGetDevice(&device) == cudaSuccess;
  stopping_ = std::thread([comm = comm_, name = name_, done = stop_done_, device, known] {
    if (known) cudaSetDevice(device);
    ncclCommAbort(comm);
    done->store(true, std::memory_order_release);
  });
  comm_ = nullptr;
}

}  // namespace quintet::comm::nccl
