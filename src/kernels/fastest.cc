#include "kernels/fastest.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/error.h"

namespace quintet::kernels {
namespace {

constexpr int kRounds = 3, kFinalRounds = 10;
constexpr size_t kFinalists = 4;
constexpr double kTooSlow = 1.5, kClearlyFaster = 0.99;

double median_of(std::vector<double> times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

}  // namespace

Fastest find_fastest(size_t count, const std::function<double(size_t)>& time) {
  QUINTET_CHECK(count > 0, "no candidates to time");
  std::vector<std::vector<double>> times(count);
  std::vector<size_t> left(count);  // still in the race, candidate 0 first
  std::iota(left.begin(), left.end(), 0);
  const auto run = [&](bool backwards) {
    for (size_t k = 0; k < left.size(); ++k) {
      const size_t i = left[backwards ? left.size() - 1 - k : k];
      times[i].push_back(time(i));
    }
  };
  run(false);
  const double least = std::ranges::min(times, {}, [](const auto& t) { return t[0]; })[0];
  std::erase_if(left, [&](size_t i) { return i != 0 && times[i][0] > kTooSlow * least; });
  for (int round = 1; round < kRounds; ++round) run(round % 2 != 0);
  const auto by_median = [&](size_t i) { return median_of(times[i]); };
  std::sort(left.begin() + 1, left.end(), [&](size_t a, size_t b) { return by_median(a) < by_median(b); });
  left.resize(std::min(left.size(), kFinalists));
  if (left.size() > 1)
    for (int round = 0; round < kFinalRounds; ++round) run(round % 2 != 0);
  const size_t best = *std::ranges::min_element(left, {}, by_median);
  const size_t chosen = by_median(best) < kClearlyFaster * by_median(0) ? best : 0;
  return {chosen, by_median(chosen)};
}

}  // namespace quintet::kernels
