// Numbers as people read them, and the nearest word to a misspelt one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace quintet::base {

// "0 B", "1023 B", "1.0 KiB", "1.2 GiB": binary units, one decimal, four significant digits at most.
std::string human_bytes(int64_t bytes);

// "850 ns", "12.3 us", "4.6 ms", "3.2 s" below a minute; then "2m 05s", "1h 02m", "3d 04h".
std::string human_duration(int64_t nanoseconds);

// "1,234,567": groups of three, with the sign kept.
std::string thousands(int64_t value);

// "999", "12.3k", "4.56M", "1.50B": three significant digits, decimal units.
std::string human_count(double value);

// ASCII letters as small ones, all else as it is.
std::string lower_case(std::string_view text);

// Least number of single-character inserts, deletes, replacements and swaps of neighbours that turn one into
// the other.
int edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to the word whatever their case, if it is near enough to be a likely slip (a third of
// its length, at least 1). Ties go to the earlier candidate.
std::optional<std::string> nearest_word(std::string_view word, std::span<const std::string> candidates);

}  // namespace quintet::base
