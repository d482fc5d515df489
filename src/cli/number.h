// The one way in which options take numbers. A number is decimal, complete and finite, and within its bounds:
// nan, inf, 1e999, 0x10, 1.5 for an integer and numbers followed by other text are refused, with the bounds.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>

namespace quintet::cli {

CLI::Validator integer_in(int64_t min, int64_t max = std::numeric_limits<int64_t>::max());
CLI::Validator number_in(double min, double max);
// Greater than 0.
CLI::Validator number_above_zero(double max = 1e15);
// Bytes, with a unit or without one: 5GB, 512MiB, 4096. Replaces the text by the number of bytes.
CLI::Validator byte_size(int64_t min);

}  // namespace quintet::cli
