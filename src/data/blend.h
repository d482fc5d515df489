// The order in which a blend takes its sets: a periodic pattern of turns, computed once from the weights. A
// period that is too long to hold (weights that are token counts) is computed block by block as it is asked
// for, from the start of the run: the first use of position n costs n steps, later ones near it nothing.
// Over the first n turns, a set of share w has had either floor(n w) or ceil(n w), so every prefix has the
// blend's proportions to within one sample. Which set has a turn, and how many it had before, is a pure
// function of the position: nothing depends on ranks, and a run continues anywhere.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace quintet::data {

class Blend {
 public:
  // Whole numbers above 0 with a sum of at most config::kMaxBlendSum (config/blend_shares.h), of at most 255
  // sets.
  explicit Blend(std::vector<int64_t> shares);

  struct Turn {
    int64_t set = 0;    // which set has the turn
    int64_t index = 0;  // how many turns it had before
  };
  // Does not allocate while the period is held. Safe for several threads.
  Turn at(int64_t position) const;
  // Turns of a set among the first `positions`.
  int64_t turns(int64_t set, int64_t positions) const;
  // The same or one more, at once: turns() of a period that is not held computes all positions before.
  int64_t most_turns(int64_t set, int64_t positions) const;

  int64_t sets() const { return static_cast<int64_t>(shares_.size()); }
  int64_t period() const { return period_; }
  double share(int64_t set) const;

 private:
  // Turns of all sets before each block of kBlock positions of the period, and the sets in turn.
  static constexpr int64_t kBlock = 256;
  struct Pattern {
    std::vector<uint8_t> set;
    std::vector<int32_t> before;
  };
  // The most positions whose sets are held.
  static constexpr int64_t kLongestPattern = int64_t{1} << 22;
  struct Blocks;
  size_t next_set(int64_t position, const std::vector<int64_t>& count) const;
  std::vector<int64_t> shares_;
  int64_t period_;
  std::shared_ptr<const Pattern> pattern_;  // or
  std::shared_ptr<Blocks> blocks_;          // of a longer period
};

}  // namespace quintet::data
