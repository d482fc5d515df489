// How often devices fail, and how often to save because of it.
#pragma once

#include <cmath>

namespace quintet::base {

// Llama 3 405B: 419 unexpected interruptions in 54 days on 16,384 GPUs (The Llama 3 Herd of Models, 2024-07).
inline constexpr double kFailuresPerDeviceHour = 419 / (54.0 * 24 * 16384);

// Young's interval between saves that cost `save_seconds` of training each.
inline double young_seconds(double save_seconds, double mean_between_failures_seconds) {
  return std::sqrt(2 * save_seconds * mean_between_failures_seconds);
}

}  // namespace quintet::base
