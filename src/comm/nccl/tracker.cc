#include "comm/nccl/tracker.h"

#include "base/clock.h"
#include "comm/nccl/failure.h"

namespace quintet::comm::nccl {
namespace {

// A capturing thread may not query events unless it opts out of the check. These events belong to no capture.
class WhileCapturing {
 public:
  WhileCapturing() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~WhileCapturing() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  WhileCapturing(const WhileCapturing&) = delete;
  WhileCapturing& operator=(const WhileCapturing&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace

Tracker::~Tracker() {
  for (const Pending& p : pending_) cudaEventDestroy(p.event);
  for (cudaEvent_t e : spare_) cudaEventDestroy(e);
}

void Tracker::add(const Call& call, uint64_t ticket, cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  require(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  if (status != cudaStreamCaptureStatusNone) return recorder_.leave(ticket);
  harvest();
  if (pending_.size() == kMaxPending) {
    spare_.push_back(pending_.front().event);
    pending_.pop_front();
  }
  Pending p{.call = call, .ticket = ticket, .since_ns = base::now_ns()};
  if (spare_.empty()) {
    require(cudaEventCreateWithFlags(&p.event, cudaEventDisableTiming), "cudaEventCreate");
  } else {
    p.event = spare_.back();
    spare_.pop_back();
  }
  // Owned by the queue before anything can throw.
  pending_.push_back(p);
  require(cudaEventRecord(p.event, stream), "cudaEventRecord");
}

const Tracker::Pending* Tracker::oldest() {
  harvest();
  return pending_.empty() ? nullptr : &pending_.front();
}

void Tracker::harvest() {
  if (pending_.empty()) return;
  const WhileCapturing guard;
  while (!pending_.empty()) {
    const cudaError_t status = cudaEventQuery(pending_.front().event);
    if (status == cudaErrorNotReady) return;
    require(status, "work of an earlier kernel or call on this GPU (seen by cudaEventQuery)");
    recorder_.leave(pending_.front().ticket);
    spare_.push_back(pending_.front().event);
    pending_.pop_front();
  }
}

}  // namespace quintet::comm::nccl
