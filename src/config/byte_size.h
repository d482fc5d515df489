// Memory sizes in recipes: a number of bytes, or "6GiB", "1.5 GiB", "800MB".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quintet::config {

// Units are B, KiB, MiB, GiB, TiB (powers of 1024) and KB, MB, GB, TB (powers of 1000), case-insensitive,
// after an optional space; a number without a unit is in bytes. Fractions are rounded down to whole bytes.
// Empty for anything else, including negative numbers, more than 2^62 bytes, and less than one byte other
// than 0: where 0 means no limit, "0.5B" must not.
std::optional<int64_t> parse_byte_size(std::string_view text);

// "6GiB" when a unit fits exactly, otherwise the number of bytes. parse_byte_size reads it back unchanged.
std::string byte_size_text(int64_t bytes);

}  // namespace quintet::config
