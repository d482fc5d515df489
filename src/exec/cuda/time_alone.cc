// Time of each part of a step when it has the device to itself: the lower bounds that a step is compared
// with.
#include <algorithm>

#include "exec/cuda/executor.h"

namespace quintet::exec::cuda {
namespace {

// Seconds per call, from batches long enough that launches do not matter. The first third of the time only
// lets the clocks settle at what the GPU sustains.
template <class F>
double seconds_of(const device::cuda::Stream& stream, double seconds, const F& call) {
  const device::cuda::Event begin(true), end(true);
  const auto time = [&](int calls) {
    stream.record(begin);
    for (int i = 0; i < calls; ++i) call();
    stream.record(end);
    end.synchronize();
    return static_cast<double>(end.since_ns(begin)) * 1e-9;
  };
  time(1);
  const double once = std::max(time(2) / 2, 1e-7);
  const int calls = static_cast<int>(std::clamp(seconds / 12 / once, 1.0, 1000.0));
  for (double spent = 0; spent < seconds / 3;) spent += time(calls);
  double spent = 0;
  int64_t made = 0;
  while (spent < seconds * 2 / 3) {
    spent += time(calls);
    made += calls;
  }
  return spent / static_cast<double>(made);
}

}  // namespace

double CudaExecutor::time_alone(const program::Issue& issue, double seconds) {
  const Bound& b = bound_[static_cast<size_t>(issue.body)][static_cast<size_t>(issue.instr)];
  if (b.instr->kind != program::InstrKind::Compute) return 0;
  return seconds_of(streams_[0], seconds, [&] { b.kernel->run(b, false); });
}

double CudaExecutor::copy_bytes_per_s(double seconds) {
  const int64_t bytes = std::min<int64_t>(program_.arena_bytes / 2, int64_t{1} << 30);
  const double once =
      seconds_of(streams_[0], seconds, [&] { streams_[0].copy(arena_ + bytes, arena_, bytes); });
  return 2 * static_cast<double>(bytes) / once;
}

}  // namespace quintet::exec::cuda
