#include "data/blend.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <numeric>

#include "base/error.h"
#include "config/blend_shares.h"

namespace quintet::data {

// What is known of a long period: how many turns every set had before each block, as far as was asked for,
// and the sets of the blocks that were used last.
struct Blend::Blocks {
  static constexpr int64_t kSize = int64_t{1} << 16;
  struct Held {
    int64_t block = -1;
    std::vector<uint8_t> set;
  };
  std::mutex mutex;
  std::vector<std::vector<int64_t>> before;
  std::array<Held, 4> held;
  size_t next = 0;

  // The sets of a block. The mutex is held.
  const std::vector<uint8_t>& sets_of(int64_t block, const Blend& blend) {
    for (const Held& one : held)
      if (one.block == block) return one.set;
    Held& one = held[next++ % held.size()];
    if (before.empty()) before.emplace_back(blend.shares_.size(), 0);
    // The blocks on the way there leave their counts.
    for (auto at = std::min(block, static_cast<int64_t>(before.size()) - 1); at <= block; ++at) {
      std::vector<int64_t> count = before[static_cast<size_t>(at)];
      one.set.resize(static_cast<size_t>(kSize));
      for (int64_t i = 0; i < kSize; ++i) {
        const size_t chosen = blend.next_set(at * kSize + i, count);
        one.set[static_cast<size_t>(i)] = static_cast<uint8_t>(chosen);
        ++count[chosen];
      }
      if (static_cast<int64_t>(before.size()) == at + 1) before.push_back(std::move(count));
    }
    one.block = block;
    return one.set;
  }
};

// Among the sets whose count may grow without exceeding ceil(n w), the one that first needs it for floor(n
// w): earliest deadline first, which keeps every set within its quota (Tijdeman's chairman assignment).
size_t Blend::next_set(int64_t position, const std::vector<int64_t>& count) const {
  size_t chosen = shares_.size();
  __int128 earliest = 0;
  for (size_t k = 0; k < shares_.size(); ++k) {
    if (__int128{count[k]} * period_ >= __int128{position + 1} * shares_[k]) continue;
    const __int128 deadline = (__int128{count[k] + 1} * period_ + shares_[k] - 1) / shares_[k];
    if (chosen < shares_.size() && deadline >= earliest) continue;
    chosen = k;
    earliest = deadline;
  }
  QUINTET_CHECK(chosen < shares_.size(), "no set may take turn {} of a blend", position);
  return chosen;
}

Blend::Blend(std::vector<int64_t> shares) : shares_(std::move(shares)) {
  period_ = std::accumulate(shares_.begin(), shares_.end(), int64_t{0});
  QUINTET_CHECK(!shares_.empty() && shares_.size() <= 255 && period_ <= config::kMaxBlendSum &&
                    *std::ranges::min_element(shares_) > 0,
                "a blend of {} sets with a period of {}", shares_.size(), period_);
  if (period_ > kLongestPattern) {
    blocks_ = std::make_shared<Blocks>();
    return;
  }
  auto pattern = std::make_shared<Pattern>();
  pattern->set.resize(static_cast<size_t>(period_));
  std::vector<int64_t> count(shares_.size(), 0);
  for (int64_t n = 0; n < period_; ++n) {
    if (n % kBlock == 0)
      for (const int64_t c : count) pattern->before.push_back(static_cast<int32_t>(c));
    const size_t chosen = next_set(n, count);
    pattern->set[static_cast<size_t>(n)] = static_cast<uint8_t>(chosen);
    ++count[chosen];
  }
  pattern_ = std::move(pattern);
}

double Blend::share(int64_t set) const {
  return static_cast<double>(shares_[static_cast<size_t>(set)]) / static_cast<double>(period_);
}

int64_t Blend::turns(int64_t set, int64_t positions) const {
  QUINTET_CHECK(set >= 0 && set < sets() && positions >= 0, "set {} of {}, {} turns", set, sets(), positions);
  if (blocks_) {
    const std::lock_guard lock(blocks_->mutex);
    const int64_t block = positions / Blocks::kSize, within = positions % Blocks::kSize;
    const auto& sets = blocks_->sets_of(block, *this);
    return blocks_->before[static_cast<size_t>(block)][static_cast<size_t>(set)] +
           std::count(sets.begin(), sets.begin() + within, static_cast<uint8_t>(set));
  }
  const int64_t within = positions % period_, block = within / kBlock;
  int64_t count = positions / period_ * shares_[static_cast<size_t>(set)] +
                  pattern_->before[static_cast<size_t>(block * sets() + set)];
  for (int64_t n = block * kBlock; n < within; ++n) count += pattern_->set[static_cast<size_t>(n)] == set;
  return count;
}

int64_t Blend::most_turns(int64_t set, int64_t positions) const {
  if (pattern_) return turns(set, positions);
  const __int128 share = shares_[static_cast<size_t>(set)];
  return static_cast<int64_t>((share * positions + period_ - 1) / period_);
}

Blend::Turn Blend::at(int64_t position) const {
  int64_t set = 0;
  if (blocks_) {
    const std::lock_guard lock(blocks_->mutex);
    set = blocks_->sets_of(position / Blocks::kSize, *this)[static_cast<size_t>(position % Blocks::kSize)];
  } else {
    set = pattern_->set[static_cast<size_t>(position % period_)];
  }
  return {set, turns(set, position)};
}

}  // namespace quintet::data
