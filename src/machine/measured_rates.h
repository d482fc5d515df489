// Converts measurements into links and text.
#pragma once

#include <string>
#include <string_view>

#include "hardware/cluster.h"

namespace quintet::machine {

// A link with exactly the measured bandwidth and latency.
hardware::Link measured_link(std::string name, std::string title, hardware::LinkKind kind, double bytes_per_s,
                             double latency_s, const std::string& date);

// "16.2 GFLOP/s": `digits` significant digits and a decimal prefix.
std::string with_prefix(double value, std::string_view unit, int digits = 3);

}  // namespace quintet::machine
