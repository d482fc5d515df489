// Enqueued calls that have not finished: an event after each, and its entry in the rank's record.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <vector>

#include "comm/recorder.h"

namespace quintet::comm::nccl {

class Tracker {
 public:
  explicit Tracker(Recorder& recorder) : recorder_(recorder) {}
  ~Tracker();
  Tracker(const Tracker&) = delete;
  Tracker& operator=(const Tracker&) = delete;

  struct Pending {
    Call call;
    uint64_t ticket = 0;
    int64_t since_ns = 0;
    cudaEvent_t event = nullptr;
  };

  // Adds the call with this ticket, which was just enqueued. A captured call is marked left at once, because
  // its execution is not observable here.
  void add(const Call& call, uint64_t ticket, cudaStream_t stream);
  // Marks finished calls as left. Returns the oldest unfinished call, or null.
  const Pending* oldest();

 private:
  void harvest();

  // Past this number the oldest is dropped; the record keeps no more either.
  static constexpr size_t kMaxPending = Recorder::kCapacity;
  Recorder& recorder_;
  std::deque<Pending> pending_;
  std::vector<cudaEvent_t> spare_;
};

}  // namespace quintet::comm::nccl
