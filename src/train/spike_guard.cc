#include "train/spike_guard.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace quintet::train {

SpikeGuard::Limits SpikeGuard::limits(int64_t step) {
  const auto count =
      std::count_if(recent_.begin(), recent_.end(), [&](const Accepted& a) { return a.step < step - 1; });
  constexpr double kNone = std::numeric_limits<double>::infinity();
  if (count < settings_.window) return {kNone, kNone};
  const auto first = recent_.begin() + (count - settings_.window), last = recent_.begin() + count;
  const auto n = static_cast<double>(settings_.window);
  const auto limit = [&](double Accepted::*number) {
    double sum = 0, squares = 0;
    for (auto a = first; a != last; ++a) sum += (*a).*number;
    const double mean = sum / n;
    for (auto a = first; a != last; ++a) squares += ((*a).*number - mean) * ((*a).*number - mean);
    return mean + settings_.factor * std::sqrt(squares / n);
  };
  return {limit(&Accepted::loss), limit(&Accepted::norm)};
}

void SpikeGuard::accept(int64_t step, double loss, double norm) {
  recent_.push_back({step, loss, norm});
  // Two steps may be accepted before the limits of the next one are asked for.
  while (static_cast<int64_t>(recent_.size()) > settings_.window + 2) recent_.pop_front();
}

}  // namespace quintet::train
