// How a model scales with the number of devices. Each point is the best layout of a short search, and no
// worse than the layouts of the other points rescaled in dp. An efficiency above 100 % is therefore never a
// search artifact: it means that fewer devices have less memory for the same model.
#pragma once

#include <string>
#include <vector>

#include "search/search.h"

namespace quintet::search {

struct ScalePoint {
  int devices = 0;
  int64_t global_batch = 0;
  std::optional<plan::Report> best;  // nullopt: no layout fits, or the batch does not divide
  double speedup = 0;                // in tokens/s, relative to the first point that fits
  double efficiency = 0;             // speedup divided by the growth in devices
};

struct Scaling {
  std::vector<ScalePoint> strong;  // the same global batch
  std::vector<ScalePoint> weak;    // a global batch proportional to the devices
  // From `strong`: past this count, doubling the devices gains less than kWorthwhile. 0: nothing fits.
  int worthwhile = 0;
};
inline constexpr double kWorthwhile = 1.6;

struct ScalingOptions {
  int plans = 12;                       // per point
  int64_t groups = 300, layouts = 300;  // per point (search.h)
  double work = 8e4, longest = 2.2e4;
  int threads = 2;
  bool weak = true;
  std::function<void(int devices)> progress = {};
};

// The cluster's device count halved up to `down` times and doubled up to `up` times.
std::vector<int> device_counts(const hardware::Cluster& cluster, int down, int up);
// The same hardware with another number of devices.
hardware::Cluster resized(const hardware::Cluster& cluster, int devices);

Scaling scale(const config::Recipe& recipe, const plan::Assumptions& assumptions,
              const std::vector<int>& devices, const ScalingOptions& options = {});

std::string to_text(const Scaling& scaling);

}  // namespace quintet::search
