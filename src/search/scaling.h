// How a model scales over numbers of devices: for each the best layout that a short search finds, and no
// worse than the layouts of the other numbers with more or fewer data ranks. So more speed than devices (an
// efficiency above 100 %) is never the search's doing: fewer devices have less memory for the same model.
#pragma once

#include <string>
#include <vector>

#include "search/search.h"

namespace quintet::search {

struct ScalePoint {
  int devices = 0;
  int64_t global_batch = 0;
  std::optional<plan::Report> best;  // nothing: no layout fits, or the batch does not divide
  double speedup = 0;                // of tokens per second over the first point that fits
  double efficiency = 0;             // speedup over the growth of devices
};

struct Scaling {
  std::vector<ScalePoint> strong;  // the same global batch
  std::vector<ScalePoint> weak;    // a global batch that grows with the devices
  // Of `strong`: beyond this, twice the devices bring less than kWorthwhile. 0: nothing fits.
  int worthwhile = 0;
};
inline constexpr double kWorthwhile = 1.6;

struct ScalingOptions {
  int plans = 12;                       // for each point
  int64_t groups = 300, layouts = 300;  // for each point (search.h)
  double work = 8e4, longest = 2.2e4;
  int threads = 2;
  bool weak = true;
  std::function<void(int devices)> progress = {};
};

// Halves and doubles of the cluster's devices: `down` times and `up` times.
std::vector<int> device_counts(const hardware::Cluster& cluster, int down, int up);
// The same machines, more or fewer.
hardware::Cluster resized(const hardware::Cluster& cluster, int devices);

Scaling scale(const config::Recipe& recipe, const plan::Assumptions& assumptions,
              const std::vector<int>& devices, const ScalingOptions& options = {});

std::string to_text(const Scaling& scaling);

}  // namespace quintet::search
