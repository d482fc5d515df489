// Lengths of a run in recipes (steps, sequences, tokens, or a fraction of the run), and the interval between
// checkpoints.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "config/recipe.h"

namespace quintet::config {

inline constexpr const char* kLengthWords =
    "a number of steps, a fraction of the run like 0.02, or a string like \"2B tokens\" or \"4096 "
    "sequences\"";

// "2B tokens", "1.5M tokens", "4096 sequences", "200 steps": a number, an optional K, M, B or T (powers of
// 1000), and the unit. Empty for anything else, for numbers that are not whole and for more than 2^53.
std::optional<Length> parse_length(std::string_view text);

// "2B tokens", "200 steps", "2 % of the run". parse_length reads all but fractions back unchanged.
std::string length_text(const Length& length);

inline constexpr const char* kIntervalWords =
    "a number of steps, a time like \"90s\", \"10min\" or \"2h\", or \"auto\"";

// "90s", "10min", "2h", "200 steps", "auto". Empty for anything else and for more than 2^30 seconds or steps.
std::optional<SaveInterval> parse_interval(std::string_view text);
// The nearest legal value to a wrong one in a recipe, as it would be written there. "1.5min": "90s" with
// quotes, "1h30min": "90min", "-3": 0, "automatic": "auto".
std::string nearest_interval(std::string_view text);
// "200 steps", "10min" (the largest unit that fits exactly), "auto".
std::string interval_text(const SaveInterval& interval);

}  // namespace quintet::config
