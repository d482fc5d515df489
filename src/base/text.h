// Human-readable numbers, and suggestions for misspelt words.
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

// Converts ASCII letters to lower case; other characters are unchanged.
std::string lower_case(std::string_view text);

// Damerau-Levenshtein distance: the smallest number of single-character insertions, deletions, replacements
// and swaps of neighbours between the two.
int edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to the word, ignoring case, if it is close enough to be a likely typo (a third of its
// length, at least 1). Ties go to the earlier candidate.
std::optional<std::string> nearest_word(std::string_view word, std::span<const std::string> candidates);

}  // namespace quintet::base
