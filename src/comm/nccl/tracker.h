// Which enqueued calls are not done yet: an event behind each, and its entry in the rank's record.
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

  // The call with this ticket has just been enqueued. One that went into a graph is left at once: when it
  // runs is not known here.
  void add(const Call& call, uint64_t ticket, cudaStream_t stream);
  // Marks what is done as left. The oldest call that is not, or null.
  const Pending* oldest();

 private:
  void harvest();

  // Beyond, the oldest is forgotten; the record keeps no more either.
  static constexpr size_t kMost = Recorder::kCapacity;
  Recorder& recorder_;
  std::deque<Pending> pending_;
  std::vector<cudaEvent_t> spare_;
};

}  // namespace quintet::comm::nccl
