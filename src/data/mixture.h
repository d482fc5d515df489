// What a run trains on: one dataset, or several that a blend takes in turn. The global order of samples is a
// pure function of (seed, position); each set has its own order and its own epochs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/blend.h"
#include "data/dataset.h"
#include "data/sampler.h"

namespace quintet::data {

struct MixtureSet {
  std::string name;  // empty for a single set
  Dataset dataset;
  Sampler sampler;
};

class Mixture {
 public:
  Mixture(Dataset dataset, Sampler sampler);
  // Several sets of one sequence length, in the proportions of the blend.
  Mixture(std::vector<MixtureSet> sets, Blend blend);

  struct Pick {
    int64_t set = 0;
    int64_t sample = 0;  // of that set
    int64_t epoch = 0;   // of that set
  };
  // What the global order has at a position; empty past the end of a sequential pass. Does not allocate.
  std::optional<Pick> at(int64_t position) const;
  // Samples of a set among the first `positions`.
  int64_t taken(int64_t set, int64_t positions) const;

  int64_t sets() const { return static_cast<int64_t>(sets_.size()); }
  const MixtureSet& set(int64_t i) const { return sets_[static_cast<size_t>(i)]; }
  const Dataset& dataset(int64_t i) const { return set(i).dataset; }
  double share(int64_t i) const { return blend_ ? blend_->share(i) : 1; }

  int64_t seq_len() const { return sets_[0].dataset.seq_len(); }
  // Of all sets together.
  int64_t samples() const;
  int64_t tokens() const;
  int64_t documents() const;
  // The number of a pick among the samples of all sets, one set after another.
  int64_t number(const Pick& pick) const { return first_[static_cast<size_t>(pick.set)] + pick.sample; }

 private:
  std::vector<MixtureSet> sets_;
  std::optional<Blend> blend_;  // with more than one set
  std::vector<int64_t> first_ = {0};
};

}  // namespace quintet::data
