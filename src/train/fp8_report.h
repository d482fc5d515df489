// What quantisation did to the values of a step (precision.linear), from its step sums (Rank::step_sums).
#pragma once

#include <array>
#include <span>

#include "observe/metrics.h"
#include "train/rank.h"

namespace quintet::train {

// Over all micro-batches and ranks, of the inputs, weights or gradients of quantised linears.
struct Rounding {
  double values = 0, saturated = 0, zeroed = 0;
  double saturated_share() const { return values > 0 ? saturated / values : 0; }
  double zeroed_share() const { return values > 0 ? zeroed / values : 0; }  // of values other than 0
};
using Roundings = std::array<Rounding, graph::kNumScaleOf>;

Roundings roundings_of(std::span<const Rank::Sum> sums, std::span<const graph::ScaleDecl> scales);

// Adds the list "fp8" to a step's record, with an object each for x, w and dy; nothing in runs without
// them. See docs/formats/metrics.md.
void add_roundings(observe::Record& record, const Rank& rank);

}  // namespace quintet::train
