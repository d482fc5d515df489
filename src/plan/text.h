// A report as text (one screen) and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "plan/plan.h"

namespace quintet::plan {

std::string to_text(const Report& report);
std::string to_json(const Report& report);
nlohmann::ordered_json json_of(const Report& report);
inline constexpr int kJsonLevels = 3;  // of a report that are spread over lines (base/json.h)

// "pp 16 x dp_shard 128 x tp 8"
std::string axes_text(const config::Parallel& parallel);
// "dp_shard 8 x tp 2, zero 1, sequence parallelism, recompute selective"
std::string layout_text(const config::Recipe& recipe);
// "12.3 ms", "6.12 s", "10,790 s"
std::string seconds_text(double seconds);
// "0.4736", "128.5", "10,790": four significant digits, or whole numbers with thousands separators.
std::string number_text(double number);

}  // namespace quintet::plan
