#include "train/expert_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace quintet::train {

namespace {

// Maximum over mean of the sums of `parts` equal ranges of `load`.
double max_over_mean(const std::vector<int64_t>& load, int64_t parts) {
  const auto width = static_cast<std::ptrdiff_t>(load.size()) / parts;
  int64_t most = 0, all = 0;
  for (auto at = load.begin(); at != load.end(); at += width) {
    const int64_t sum = std::accumulate(at, at + width, int64_t{0});
    most = std::max(most, sum);
    all += sum;
  }
  return all == 0 ? 0 : static_cast<double>(most * parts) / static_cast<double>(all);
}

ExpertUse use_of(const Rank::Sum& sum, const config::Recipe& recipe) {
  // Assignments per expert, then the number dropped, then the sum of entropies (op expert_load).
  QUINTET_CHECK(sum.values.size() > 2, "op expert_load returned {} values, expected more than 2",
                sum.values.size());
  const size_t experts = sum.values.size() - 2;
  ExpertUse use{.block = sum.block - 1};  // label 0 of a graph is the embedding
  for (const double n : sum.values.first(experts)) use.load.push_back(std::llround(n));
  use.assignments = std::accumulate(use.load.begin(), use.load.end(), int64_t{0});
  use.dropped = std::llround(sum.values[experts]);
  use.max_over_mean = max_over_mean(use.load, static_cast<int64_t>(experts));
  use.rank_max_over_mean = max_over_mean(use.load, recipe.parallel.ep);
  use.entropy = sum.values[experts + 1] / static_cast<double>(recipe.batch.global * recipe.data.seq_len);
  return use;
}

bool is_auxiliary_loss(graph::SumKind kind) {
  using graph::SumKind;
  return kind == SumKind::BalanceLoss || kind == SumKind::MicroBatchBalance ||
         kind == SumKind::SequenceBalance || kind == SumKind::GlobalBalance || kind == SumKind::ZLoss;
}

}  // namespace

double ExpertUse::drop_rate() const {
  return assignments == 0 ? 0 : static_cast<double>(dropped) / static_cast<double>(assignments);
}

double ExpertUse::entropy_share() const {
  return load.size() > 1 ? entropy / std::log(static_cast<double>(load.size())) : 0;
}

std::vector<ExpertUse> expert_uses(std::span<const Rank::Sum> sums, const config::Recipe& recipe) {
  std::vector<ExpertUse> uses;
  for (const Rank::Sum& sum : sums)
    if (sum.kind == graph::SumKind::Load) uses.push_back(use_of(sum, recipe));
  std::sort(uses.begin(), uses.end(),
            [](const ExpertUse& a, const ExpertUse& b) { return a.block < b.block; });
  for (const Rank::Sum& sum : sums)
    for (ExpertUse& use : uses) {
      if (use.block == sum.block - 1 && is_auxiliary_loss(sum.kind))
        use.losses[to_string(sum.kind)] = sum.values[0] / sum.share;
    }
  return uses;
}

const ExpertUse* worst(std::span<const ExpertUse> uses) {
  const auto it = std::max_element(uses.begin(), uses.end(), [](const ExpertUse& a, const ExpertUse& b) {
    return a.max_over_mean < b.max_over_mean;
  });
  return it == uses.end() ? nullptr : &*it;
}

void add_experts(observe::Record& record, std::span<const ExpertUse> uses, bool whole) {
  if (uses.empty()) return;
  record.set("load_max_over_mean", worst(uses)->max_over_mean);
  std::map<std::string_view, double> sums;
  for (const ExpertUse& use : uses)
    for (const auto& [name, loss] : use.losses) sums[name] += loss;
  for (const auto& [name, sum] : sums) record.set(name, sum);
  const auto numbers = static_cast<int64_t>(uses.size() * uses[0].load.size());
  std::vector<observe::Record> blocks;
  for (const ExpertUse& use : uses) {
    observe::Record& block = blocks.emplace_back();
    block.set("block", use.block).set("max_over_mean", use.max_over_mean);
    block.set("rank_max_over_mean", use.rank_max_over_mean).set("drop_rate", use.drop_rate());
    block.set("entropy", use.entropy).set("entropy_share", use.entropy_share());
    for (const auto& [name, loss] : use.losses) block.set(name, loss);
    if (whole || numbers <= kShortLoads) block.set("load", std::span<const int64_t>(use.load));
  }
  record.set("experts", std::span<const observe::Record>(blocks));
}

void add_next_token_loss(observe::Record& record, std::span<const Rank::Sum> sums, int64_t labels) {
  for (const Rank::Sum& sum : sums)
    if (sum.kind == graph::SumKind::NextTokenLoss)
      record.set("next_token_loss", labels > 0 ? sum.values[0] / static_cast<double>(labels) : 0.0);
}

std::string LoadAlarm::check(int64_t step, std::span<const ExpertUse> uses) {
  if (last_ > 0 && step - last_ < kQuietSteps) return {};
  const auto is_bad = [](const ExpertUse& use) { return use.utilisation() < kMinUtilisation; };
  const auto bad = std::count_if(uses.begin(), uses.end(), is_bad);
  if (bad == 0) return {};
  last_ = step;
  const ExpertUse& use = *worst(uses);
  const auto busiest = std::max_element(use.load.begin(), use.load.end()) - use.load.begin();
  const auto idle = std::count(use.load.begin(), use.load.end(), 0);
  std::string text = fmt::format(
      "step {}: experts of block {} are unbalanced: expert {} receives {:.2f}x the mean load, utilisation "
      "{:.0f} %",
      step, use.block, busiest, use.max_over_mean, 100 * use.utilisation());
  if (idle > 0) text += fmt::format("; {} of {} experts receive nothing", idle, use.load.size());
  if (expert_ranks_ > 1)
    text += fmt::format("; the busiest of {} expert ranks receives {:.2f}x the mean", expert_ranks_,
                        use.rank_max_over_mean);
  if (bad > 1)
    text += fmt::format("; {} of {} blocks are below {:.0f} %", bad, uses.size(), 100 * kMinUtilisation);
  return text + ". Increase model.moe.balance_loss or model.moe.bias_rate to balance them";
}

}  // namespace quintet::train
