// Estimates for a way of laying out values (layout_space.h) before anything is compiled. A model with experts
// has thousands of ways, and the search examines only a few of them closely.
#pragma once

#include "plan/plan.h"
#include "search/layout_space.h"

namespace quintet::search {

class CoarseEstimate {
 public:
  CoarseEstimate(const config::Recipe& recipe, const plan::Assumptions& assumptions);

  // Lower bound for every layout: the model's FLOPs, spread evenly over all devices, at their best rate.
  double least_seconds() const { return least_seconds_; }
  // Lower bound for every layout: state sharded over all devices, plus context and libraries.
  int64_t least_bytes() const { return least_bytes_; }
  // Estimate that decides what is examined first: compute at its best rate plus the communication between
  // blocks, with none of it hidden.
  double likely_seconds(const Family& way) const;

 private:
  const config::Recipe& recipe_;
  const hardware::Cluster& cluster_;
  double least_seconds_ = 0;
  int64_t least_bytes_ = 0;
};

}  // namespace quintet::search
