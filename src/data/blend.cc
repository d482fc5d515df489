#include "data/blend.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "config/blend_shares.h"

namespace quintet::data {
// Among the sets whose count may grow without exceeding ceil(n w), the one that first needs it for floor(n
// w): earliest deadline first, which keeps every set within its quota (Tijdeman's chairman assignment).
Blend::Blend(std::vector<int64_t> shares) : shares_(std::move(shares)) {
  period_ = std::accumulate(shares_.begin(), shares_.end(), int64_t{0});
  QUINTET_CHECK(!shares_.empty() && shares_.size() <= 255 && period_ <= config::kMaxBlendPeriod &&
                    *std::ranges::min_element(shares_) > 0,
                "a blend of {} sets with a period of {}", shares_.size(), period_);
  auto pattern = std::make_shared<Pattern>();
  pattern->set.resize(static_cast<size_t>(period_));
  const size_t sets = shares_.size();
  std::vector<int64_t> count(sets, 0), deadline(sets);
  for (size_t k = 0; k < sets; ++k) deadline[k] = (period_ + shares_[k] - 1) / shares_[k];
  for (int64_t n = 0; n < period_; ++n) {
    if (n % kBlock == 0)
      for (const int64_t c : count) pattern->before.push_back(static_cast<int32_t>(c));
    size_t chosen = sets;
    for (size_t k = 0; k < sets; ++k)
      if (count[k] * period_ < (n + 1) * shares_[k] && (chosen == sets || deadline[k] < deadline[chosen]))
        chosen = k;
    QUINTET_CHECK(chosen < sets, "no set may take turn {} of a blend", n);
    pattern->set[static_cast<size_t>(n)] = static_cast<uint8_t>(chosen);
    ++count[chosen];
    deadline[chosen] = ((count[chosen] + 1) * period_ + shares_[chosen] - 1) / shares_[chosen];
  }
  pattern_ = std::move(pattern);
}

double Blend::share(int64_t set) const {
  return static_cast<double>(shares_[static_cast<size_t>(set)]) / static_cast<double>(period_);
}

int64_t Blend::turns(int64_t set, int64_t positions) const {
  QUINTET_CHECK(set >= 0 && set < sets() && positions >= 0, "set {} of {}, {} turns", set, sets(), positions);
  const int64_t within = positions % period_, block = within / kBlock;
  int64_t count = positions / period_ * shares_[static_cast<size_t>(set)] +
                  pattern_->before[static_cast<size_t>(block * sets() + set)];
  for (int64_t n = block * kBlock; n < within; ++n) count += pattern_->set[static_cast<size_t>(n)] == set;
  return count;
}

Blend::Turn Blend::at(int64_t position) const {
  const int64_t set = pattern_->set[static_cast<size_t>(position % period_)];
  return {set, turns(set, position)};
}

}  // namespace quintet::data
