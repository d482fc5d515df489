// Parameters, gradients and optimizer state as a layout stores them, and the collectives that synchronize
// them: closed forms for bounds.h.
#pragma once

#include "search/block_tables.h"

namespace quintet::search {

// Costs of one or more blocks.
struct StateCosts {
  int64_t bytes = 0;        // stored on a rank
  double update_bytes = 0;  // touched by the optimizer's update, including the gradient norm before it
  double norm_bytes = 0;    // part of update_bytes that the norm reads
  // Seconds of collectives: one gather of all parameters, the part of it that the backward pass repeats, one
  // reduction over shards, and the sum over replicas once per step.
  double gather = 0, again = 0, reduce = 0, replicate = 0;

  void add(const StateCosts& block, bool gathered_again);
};

class StateCostModel {
 public:
  StateCostModel(const config::Recipe& recipe, const sim::Machine& machine);

  StateCosts of(const BlockTable& block) const;
  // Elements of a block that are gathered for a pass (zero 3 only).
  int64_t gathered(const BlockTable& block) const;
  // Lower bound on the seconds per step that the stream of these collectives is busy.
  double stream_seconds(const StateCosts& costs) const;
  // Estimate of the seconds that compute waits for them; `busy` is the compute time of a micro-batch.
  double likely_exposed(const StateCosts& costs, double busy) const;

 private:
  // Placement of the state of dense or expert parameters.
  struct Place {
    int64_t stride = 1;    // between its ranks
    int64_t shards = 1;    // ranks that hold different ranges (zero >= 1)
    int64_t replicas = 1;  // copies of each range
    int64_t outer = 1;     // parts of a range's optimizer state, one on each replica
  };
  const Place& place(const GroupTable& group) const { return group.expert ? expert_ : dense_; }
  void add(StateCosts& costs, const GroupTable& group) const;
  int64_t bytes_of(int64_t elements) const;  // as gathered
  bool may_persist(const GroupTable& group) const;
  double blocks_per_group(const GroupTable& group) const;  // at most, where this block's share is counted

  const config::Recipe& recipe_;
  const sim::Machine& machine_;
  Place dense_, expert_;
};

}  // namespace quintet::search
