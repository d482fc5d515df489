// What a run costs: device-hours, money, energy, carbon; and what failures leave of it. Pure functions.
#pragma once

#include <string_view>

#include "hardware/cluster.h"

namespace quintet::hardware {

struct RunCost {
  double seconds = 0;
  double device_hours = 0;
  double usd = 0;  // 0: the cluster has no price
  double kwh = 0;  // servers at full load times the site's PUE
  double co2_kg = 0;
};

// `device_seconds` on the cluster's accelerators, all of them at once.
RunCost cost_of(double device_seconds, const Cluster& cluster);
// A budget of tokens at the whole cluster's rate. A rate that is not above 0 is a UserError.
RunCost cost_of_tokens(double tokens, double tokens_per_s, const Cluster& cluster);
// So many FLOPs at so many a second and device; refused when that is above the device's peak.
RunCost cost_of_flops(double flops, double flops_per_s_per_device, Arithmetic arithmetic,
                      const Cluster& cluster);

// 6 FLOPs for each parameter and token: forward and backward, attention left out.
inline double training_flops(double parameters, double tokens) { return 6 * parameters * tokens; }

// The share of the dense peak (MFU when the FLOPs are the model's, HFU when they are the hardware's). A share
// above 1 is a UserError: no software does more than the arithmetic of the chip, so the claim, the FLOPs or
// the arithmetic is wrong. `claim` names what is said to do so ("the published rate").
double share_of_peak(double flops_per_s_per_device, const Accelerator& accelerator, Arithmetic arithmetic,
                     std::string_view claim);

// Failures come at random, at a constant rate for each device; one stops the whole job. What was done since
// the last checkpoint is done again, after a restart that may fail too.
struct Reliability {
  // Llama 3 405B: 419 unexpected stops in 54 days on 16,384 GPUs (The Llama 3 Herd of Models, 2024-07).
  double failures_per_device_hour = 419 / (54.0 * 24 * 16384);
  double checkpoint_seconds = 30;  // that training stands still for one
  double restart_seconds = 600;    // to be where the last checkpoint was, detection included
};

struct Goodput {
  double share = 1;             // of the time that is progress
  double interval_seconds = 0;  // of training between two checkpoints
  double mean_between_failures_seconds = 0;
  double failures_per_day = 0;
  double checkpoint_share = 0;  // of the time: writing checkpoints that held
  double lost_share = 0;        // of the time: work done again and restarts
};

// Of a job on `devices`. interval_seconds 0: the best one.
Goodput goodput(const Reliability& reliability, int devices, double interval_seconds = 0);

// Intervals of training between checkpoints: Young's square root, Daly's correction of it, and the one that
// maximises goodput() exactly.
double young_interval(double checkpoint_seconds, double mean_between_failures_seconds);
double daly_interval(double checkpoint_seconds, double mean_between_failures_seconds);
double best_interval(double checkpoint_seconds, double mean_between_failures_seconds);

}  // namespace quintet::hardware
