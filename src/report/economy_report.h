// The cost of a token budget at a plan's rate, with and without failures.
#pragma once

#include <string>
#include <string_view>

#include "hardware/economy.h"
#include "plan/plan.h"

namespace quintet::report {

struct EconomyReport {
  double tokens = 0;
  hardware::Reliability reliability;
  hardware::RunCost ideal;        // without failures
  hardware::Goodput goodput;      // at the best checkpoint interval
  hardware::RunCost with_losses;  // including failures, restarts and checkpoints
  hardware::RunCost least, most;  // the same at the ends of the plan's band (plan/confidence.h)
};

// "15T", "300B", "1.5e12": tokens. Throws UserError stating what was expected.
double parse_tokens(std::string_view text);

// Throws UserError for a plan above the device's peak (hardware::share_of_peak).
EconomyReport economy(const plan::Report& report, double tokens,
                      const hardware::Reliability& reliability = {});

// "34d 3h"; "1,234 years" once days no longer matter.
std::string long_duration(double seconds);

std::string to_text(const EconomyReport& economy, const hardware::Cluster& cluster);

}  // namespace quintet::report
