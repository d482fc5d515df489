// What a budget of tokens costs at a plan's rate, and what failures leave of it.
#pragma once

#include <string>
#include <string_view>

#include "hardware/economy.h"
#include "plan/plan.h"

namespace quintet::report {

struct EconomyReport {
  double tokens = 0;
  hardware::Reliability reliability;
  hardware::RunCost ideal;        // nothing fails
  hardware::Goodput goodput;      // with the best checkpoint interval
  hardware::RunCost with_losses;  // failures, restarts and checkpoints included
};

// "15T", "300B", "1.5e12": tokens. A UserError says what was expected.
double parse_tokens(std::string_view text);

// A plan above the device's peak is a UserError (hardware::share_of_peak).
EconomyReport economy(const plan::Report& report, double tokens,
                      const hardware::Reliability& reliability = {});

// "34d 3h"; "1,234 years" where nobody waits for the days.
std::string long_duration(double seconds);

std::string to_text(const EconomyReport& economy, const hardware::Cluster& cluster);

}  // namespace quintet::report
