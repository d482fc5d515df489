// Expert statistics of a run, computed from the step sums of its blocks (Rank::step_sums): load balance,
// dropped assignments, router entropy.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/recipe.h"
#include "observe/metrics.h"
#include "train/rank.h"

namespace quintet::train {

// One block in one step, summed over all micro-batches and ranks.
struct ExpertUse {
  int block = 0;                  // 0-based, as in parameter names
  std::vector<int64_t> load;      // assignments (token, choice) per expert, before dropping
  int64_t assignments = 0;        // sum of load
  int64_t dropped = 0;            // assignments that were dropped
  double max_over_mean = 0;       // of load
  double rank_max_over_mean = 0;  // of the load per expert-parallel rank
  double entropy = 0;             // of a token's scores in nats, averaged over tokens
  // Auxiliary losses as they are added to the loss, by metric: "balance_loss", "z_loss", ...
  std::map<std::string_view, double> losses;

  double drop_rate() const;
  // Entropy relative to ln(experts), the entropy of a uniform router.
  double entropy_share() const;
  // Fraction of the expert ranks' time spent computing when all wait for the busiest expert.
  double utilisation() const { return max_over_mean > 0 ? 1 / max_over_mean : 1; }
};

// One entry per block with experts, in block order; empty for a dense model. Tokens without a label count
// too.
std::vector<ExpertUse> expert_uses(std::span<const Rank::Sum> sums, const config::Recipe& recipe);

// Adds to a step's record: load_max_over_mean (of the worst block), the auxiliary losses that the recipe has
// (summed over blocks) and the list "experts" with one object per block; see
// docs/formats/metrics.md. Unless `whole` is set, per-expert loads are omitted when blocks x experts exceeds
// kShortLoads.
inline constexpr int64_t kShortLoads = 256;
void add_experts(observe::Record& record, std::span<const ExpertUse> uses, bool whole);

// Adds next_token_loss, the mean of multi-token prediction over the labels of the step, where a model has it.
void add_next_token_loss(observe::Record& record, std::span<const Rank::Sum> sums, int64_t labels);

// The block with the largest max_over_mean; null when `uses` is empty.
const ExpertUse* worst(std::span<const ExpertUse> uses);

// Warns about unevenly used experts, at most once every kQuietSteps steps.
class LoadAlarm {
 public:
  static constexpr int64_t kQuietSteps = 100;
  static constexpr double kMinUtilisation = 0.5;
  explicit LoadAlarm(int64_t expert_ranks) : expert_ranks_(expert_ranks) {}

  // The warning for 1-based step `step`; empty when there is nothing to report.
  std::string check(int64_t step, std::span<const ExpertUse> uses);

 private:
  const int64_t expert_ranks_;
  int64_t last_ = 0;  // step of the last warning; 0: none yet
};

}  // namespace quintet::train
