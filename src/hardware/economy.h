// The cost of a run: device-hours, money, energy, carbon, and the effect of failures. Pure functions.
#pragma once

#include <string_view>

#include "base/failure_rate.h"
#include "hardware/cluster.h"

namespace quintet::hardware {

struct RunCost {
  double seconds = 0;
  double device_hours = 0;
  double usd = 0;  // 0: the cluster has no price
  double kwh = 0;  // servers at full load, times the site's PUE
  double co2_kg = 0;
};

// `device_seconds`, summed over all accelerators of the cluster.
RunCost cost_of(double device_seconds, const Cluster& cluster);
// A token budget at the cluster's total rate. Throws UserError unless the rate is positive.
RunCost cost_of_tokens(double tokens, double tokens_per_s, const Cluster& cluster);
// FLOPs at a given rate per device. Throws UserError if the rate exceeds the device's peak.
RunCost cost_of_flops(double flops, double flops_per_s_per_device, Arithmetic arithmetic,
                      const Cluster& cluster);

// The fraction of the dense peak: MFU for model FLOPs, HFU for hardware FLOPs. Throws UserError above 1,
// which is impossible: the claim, the FLOPs or the arithmetic is wrong. `claim` names the source of the rate
// ("the published rate").
double share_of_peak(double flops_per_s_per_device, const Accelerator& accelerator, Arithmetic arithmetic,
                     std::string_view claim);

// Failures are random, at a constant rate per device; each stops the whole job. Work since the last
// checkpoint is repeated after a restart, which may fail too.
struct Reliability {
  double failures_per_device_hour = base::kFailuresPerDeviceHour;
  double checkpoint_seconds = 30;  // training pause per checkpoint
  double restart_seconds = 600;    // until training resumes from the last checkpoint, including detection
};

struct Goodput {
  double share = 1;             // fraction of time that is progress
  double interval_seconds = 0;  // training time between checkpoints
  double mean_between_failures_seconds = 0;
  double failures_per_day = 0;
  double checkpoint_share = 0;  // fraction of time spent writing checkpoints that completed
  double lost_share = 0;        // fraction of time spent on repeated work and restarts
};

// For a job on `devices`. interval_seconds 0: the best one.
Goodput goodput(const Reliability& reliability, int devices, double interval_seconds = 0);

// Training time between checkpoints: Young's square root, Daly's correction of it, and the one that maximises
// goodput() exactly.
double young_interval(double checkpoint_seconds, double mean_between_failures_seconds);
double daly_interval(double checkpoint_seconds, double mean_between_failures_seconds);
double best_interval(double checkpoint_seconds, double mean_between_failures_seconds);

}  // namespace quintet::hardware
