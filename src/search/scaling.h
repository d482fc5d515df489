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
  // With a noise scale: how much of the progress per token of a very small batch this batch makes, and the
  // speed-up in progress instead of tokens.
  double useful = 1, useful_speedup = 0;
};

// The share of the progress of small batches that each token of a batch makes: 1 / (1 + batch / noise scale),
// both in tokens (McCandlish et al., 2018, arXiv 1812.06162). At the critical batch size, which is the noise
// scale, it is one half: as many steps and as many tokens again as the fewest possible.
double useful_share(double batch_tokens, double noise_tokens);

struct Scaling {
  std::vector<ScalePoint> strong;  // the same global batch
  std::vector<ScalePoint> weak;    // a global batch proportional to the devices
  // From `strong`: past this count, doubling the devices gains less than kWorthwhile. 0: nothing fits.
  int worthwhile = 0;
  double noise_tokens = 0;  // the critical batch size in tokens; 0: not given
  // From `weak`: past this count, doubling devices and batch gains less than kWorthwhile in progress.
  int worthwhile_weak = 0;
};
inline constexpr double kWorthwhile = 1.6;

struct ScalingOptions {
  int plans = 12;                       // per point
  int64_t groups = 300, layouts = 300;  // per point (search.h)
  double work = 8e4, longest = 2.2e4;
  int threads = 2;
  bool weak = true;
  double noise_tokens = 0;  // measured (run.noise_scale_every); 0: not known
  std::function<void(int devices)> progress = {};
};

// The cluster's device count halved up to `down` times and doubled up to `up` times.
std::vector<int> device_counts(const hardware::Cluster& cluster, int down, int up);
// The same hardware with another number of devices.
hardware::Cluster resized(const hardware::Cluster& cluster, int devices);

Scaling scale(const config::Recipe& recipe, const plan::Assumptions& assumptions,
              const std::vector<int>& devices, const ScalingOptions& options = {});

std::string to_text(const Scaling& scaling);

// Of `points`, those for which no other is both as fast and as cheap, in device-seconds per step; fastest
// first. Their memory is what a device has, so time and cost are left.
std::vector<const ScalePoint*> pareto(const std::vector<ScalePoint>& points);
// As a table; `price` is USD per device-hour, 0: not known.
std::string price_text(const Scaling& scaling, double price);

}  // namespace quintet::search
