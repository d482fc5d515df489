#include "hardware/economy.h"

#include <cmath>

#include "base/error.h"
#include "base/text.h"

namespace quintet::hardware {

RunCost cost_of(double device_seconds, const Cluster& cluster) {
  const Accelerator& a = cluster.accelerator;
  RunCost cost;
  cost.seconds = device_seconds / cluster.world();
  cost.device_hours = device_seconds / 3600;
  cost.usd = cost.device_hours * cluster.price_per_hour;
  cost.kwh = cost.device_hours * std::max(a.system_watts, a.watts) / 1000 * cluster.pue;
  cost.co2_kg = cost.kwh * cluster.carbon_kg_per_kwh;
  return cost;
}

RunCost cost_of_tokens(double tokens, double tokens_per_s, const Cluster& cluster) {
  if (!(tokens_per_s > 0) || !(tokens >= 0))
    base::fail_user("a cost needs tokens of at least 0 and tokens per second above 0; got {} and {}", tokens,
                    tokens_per_s);
  return cost_of(tokens / tokens_per_s * cluster.world(), cluster);
}

RunCost cost_of_flops(double flops, double flops_per_s_per_device, Arithmetic arithmetic,
                      const Cluster& cluster) {
  if (!(flops_per_s_per_device > 0) || !(flops >= 0))
    base::fail_user("a cost needs FLOPs of at least 0 and FLOP/s above 0; got {} and {}", flops,
                    flops_per_s_per_device);
  share_of_peak(flops_per_s_per_device, cluster.accelerator, arithmetic, "the rate");
  return cost_of(flops / flops_per_s_per_device, cluster);
}

double share_of_peak(double flops_per_s_per_device, const Accelerator& accelerator, Arithmetic arithmetic,
                     std::string_view claim) {
  const double peak = accelerator.dense(arithmetic);
  if (peak <= 0) base::fail_user("{}: {} has no {} matmuls", claim, accelerator.title, to_string(arithmetic));
  const double share = flops_per_s_per_device / peak;
  if (share > 1)
    base::fail_user(
        "{}: {:.4g} TFLOP/s per device is {:.0f} % of the dense {} peak of {} ({:.4g} TFLOP/s): impossible. "
        "Peaks with sparsity are twice the dense ones; also check the FLOPs, the time and the arithmetic",
        claim, flops_per_s_per_device / 1e12, 100 * share, to_string(arithmetic), accelerator.title,
        peak / 1e12);
  return share;
}

double young_interval(double checkpoint_seconds, double mean_seconds) {
  return std::sqrt(2 * checkpoint_seconds * mean_seconds);
}

double daly_interval(double checkpoint_seconds, double mean_seconds) {
  if (checkpoint_seconds >= 2 * mean_seconds) return mean_seconds;
  const double ratio = checkpoint_seconds / (2 * mean_seconds);
  return young_interval(checkpoint_seconds, mean_seconds) * (1 + std::sqrt(ratio) / 3 + ratio / 9) -
         checkpoint_seconds;
}

// The expected time of a stretch of `interval` and its checkpoint is M e^(R/M) (e^x - 1) with
// x = (interval + checkpoint) / M. The best interval solves x - 1 + e^-x = checkpoint / M, whose left side
// increases from 0: Newton's method, started to the right of the root, descends towards it.
double best_interval(double checkpoint_seconds, double mean_seconds) {
  const double ratio = checkpoint_seconds / mean_seconds;
  if (ratio <= 0) return 0;
  double x = ratio + 1;  // to the right of the root
  for (int i = 0; i < 100; ++i) {
    const double step = (x + std::expm1(-x) - ratio) / -std::expm1(-x);
    x -= step;
    if (std::abs(step) <= 1e-14 * x) break;
  }
  return x * mean_seconds - checkpoint_seconds;
}

Goodput goodput(const Reliability& r, int devices, double interval_seconds) {
  if (!(r.failures_per_device_hour >= 0) || !(r.checkpoint_seconds >= 0) || !(r.restart_seconds >= 0) ||
      !(interval_seconds >= 0) || devices < 1)
    base::fail_user(
        "goodput needs failures per device-hour and seconds per checkpoint, restart and interval of at least "
        "0, and at least one device; got {}, {}, {}, {} and {}",
        r.failures_per_device_hour, r.checkpoint_seconds, r.restart_seconds, interval_seconds, devices);
  Goodput g;
  g.interval_seconds = interval_seconds;
  if (r.failures_per_device_hour == 0) {
    g.mean_between_failures_seconds = INFINITY;
    if (interval_seconds == 0) {  // never
      g.interval_seconds = INFINITY;
      return g;
    }
    g.share = interval_seconds / (interval_seconds + r.checkpoint_seconds);
    g.checkpoint_share = 1 - g.share;
    return g;
  }
  const double mean = 3600 / (r.failures_per_device_hour * devices);
  g.mean_between_failures_seconds = mean;
  g.failures_per_day = 86400 / mean;
  if (interval_seconds == 0) g.interval_seconds = best_interval(r.checkpoint_seconds, mean);
  const double stretch = g.interval_seconds + r.checkpoint_seconds;
  if (stretch == 0) {  // free, continuous checkpoints: only restarts are lost
    g.share = std::exp(-r.restart_seconds / mean);
  } else {
    const double expected = mean * std::exp(r.restart_seconds / mean) * std::expm1(stretch / mean);
    g.share = g.interval_seconds / expected;
    g.checkpoint_share = r.checkpoint_seconds / expected;
  }
  g.lost_share = 1 - g.share - g.checkpoint_share;
  return g;
}

}  // namespace quintet::hardware
