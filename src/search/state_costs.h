// Parameters, gradients and optimizer state as a layout stores them, and the messages that keep them
// together: closed forms, for bounds.h.
#pragma once

#include "search/block_tables.h"

namespace quintet::search {

// Of one block or of several.
struct StateCosts {
  double bytes = 0;         // stored on a rank
  double update_bytes = 0;  // that the optimizer's update touches, with the gradient's norm before it
  double norm_bytes = 0;    // of those, what the norm reads
  // Seconds of messages: one gather of all parameters, those of it that the backward pass repeats, one
  // reduction over shards, and the sum over replicas, once a step.
  double gather = 0, again = 0, reduce = 0, replicate = 0;

  void add(const StateCosts& block, bool gathered_again);
};

class StateCostModel {
 public:
  StateCostModel(const config::Recipe& recipe, const sim::Machine& machine);

  StateCosts of(const BlockTable& block) const;
  // Elements of a block that are gathered for a pass: zero 3 only.
  int64_t gathered(const BlockTable& block) const;
  // Seconds that the stream of such messages needs in a step, at least.
  double travel(const StateCosts& costs) const;
  // A guess at the seconds that computing waits for them; `busy` is what a micro-batch computes.
  double likely_exposed(const StateCosts& costs, double busy) const;

 private:
  // Where the state of dense or of expert parameters lies.
  struct Place {
    int64_t stride = 1;    // between its ranks
    int64_t shards = 1;    // ranks that hold different ranges (zero >= 1)
    int64_t replicas = 1;  // copies of each range
  };
  void add(StateCosts& costs, const Place& place, int64_t trainable, int64_t frozen) const;

  const config::Recipe& recipe_;
  const sim::Machine& machine_;
  Place dense_, expert_;
  int moments_ = 0;
};

}  // namespace quintet::search
