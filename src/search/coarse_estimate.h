// What can be said of a way to lay out values (layout_space.h) before anything is compiled: for the search,
// which has thousands of ways for a model with experts and looks closely at few.
#pragma once

#include "plan/plan.h"
#include "search/layout_space.h"

namespace quintet::search {

class CoarseEstimate {
 public:
  CoarseEstimate(const config::Recipe& recipe, const plan::Assumptions& assumptions);

  // No layout takes less: the model's own FLOPs, evenly over all devices, at the best rate that they reach.
  double least_seconds() const { return least_seconds_; }
  // No layout needs less: state sharded over all devices, and context and libraries.
  int64_t least_bytes() const { return least_bytes_; }
  // A guess, to decide what is looked at first: computing at its best and the messages between blocks, as if
  // none were hidden that the blocks wait for.
  double likely_seconds(const Family& way) const;

 private:
  const config::Recipe& recipe_;
  const hardware::Cluster& cluster_;
  double least_seconds_ = 0;
  int64_t least_bytes_ = 0;
};

}  // namespace quintet::search
