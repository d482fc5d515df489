// Picks the fastest of several equivalent implementations by interleaved timing.
#pragma once

#include <cstddef>
#include <functional>

namespace quintet::kernels {

struct Fastest {
  size_t index = 0;
  double time = 0;  // median of its timings
};

// `time(i)` times candidate i once, in any unit. Clocks drop under load and noise makes one of many equal
// candidates look best: all are timed for a few rounds, slow ones are eliminated, then the best few and
// candidate 0 run many rounds in alternating order, so that none always follows the same one. Candidate 0
// is kept unless the winner's median is better by at least 1 %.
Fastest find_fastest(size_t count, const std::function<double(size_t)>& time);

}  // namespace quintet::kernels
