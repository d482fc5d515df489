// What a run says about its experts, worked out from the step sums of its blocks (Rank::step_sums): how
// evenly they are used, what was dropped, how sure the routers are.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/recipe.h"
#include "observe/metrics.h"
#include "train/rank.h"

namespace quintet::train {

// One block in one step, over all its micro-batches and all ranks.
struct ExpertUse {
  int block = 0;                  // counted from 0, as in the names of parameters
  std::vector<int64_t> load;      // assignments (token, choice) by expert, before any are dropped
  int64_t assignments = 0;        // their sum
  int64_t dropped = 0;            // of them
  double max_over_mean = 0;       // of load
  double rank_max_over_mean = 0;  // of the loads of expert ranks: ep ranges of experts
  double entropy = 0;             // of a token's scores, in nats, mean over tokens
  std::optional<double> balance_loss, z_loss;  // as they enter the loss; none when the recipe has none

  double drop_rate() const;
  // entropy as a share of ln(experts), what a router that knows nothing has.
  double entropy_share() const;
  // Share of the time of the experts' ranks that is work, when all wait for the busiest expert.
  double utilisation() const { return max_over_mean > 0 ? 1 / max_over_mean : 1; }
};

// Blocks with experts, in their order; empty for a model without. Tokens are rows: those without label too.
std::vector<ExpertUse> expert_uses(std::span<const Rank::Sum> sums, const config::Recipe& recipe);

// Adds to a step's record: load_max_over_mean (of the worst block), balance_loss and z_loss (sums over
// blocks, where the recipe has them) and the list "experts", one object a block; docs/formats/metrics.md.
// Loads by expert are left out of long lists (blocks x experts beyond kShortLoads) unless `whole`.
inline constexpr int64_t kShortLoads = 256;
void add_experts(observe::Record& record, std::span<const ExpertUse> uses, bool whole);

// The block with the largest max_over_mean; null when there are none.
const ExpertUse* worst(std::span<const ExpertUse> uses);

// Speaks up when experts are used badly, at most once in kQuietSteps steps.
class LoadAlarm {
 public:
  static constexpr int64_t kQuietSteps = 100;
  static constexpr double kLeastUtilisation = 0.5;
  explicit LoadAlarm(int64_t expert_ranks) : expert_ranks_(expert_ranks) {}

  // The line to say after step `step`, counted from 1; empty: nothing to say.
  std::string check(int64_t step, std::span<const ExpertUse> uses);

 private:
  const int64_t expert_ranks_;
  int64_t last_ = 0;  // step of the last line; 0: none yet
};

}  // namespace quintet::train
