// The fastest of several ways to do the same, by timing them in turn.
#pragma once

#include <cstddef>
#include <functional>

namespace quintet::kernels {

struct Fastest {
  size_t index = 0;
  double time = 0;  // its median
};

// `time(i)` times way i once, in any unit. Clocks fall under load and noise makes one of many equal ways look
// best, so all are timed a few rounds, those that are far behind no further; then the best of them and way 0
// many rounds, to and fro, so that none always follows the same. Way 0 stays unless the winner's median is
// clearly better (1 %).
Fastest find_fastest(size_t count, const std::function<double(size_t)>& time);

}  // namespace quintet::kernels
