// Sizes of memory as recipes write them: a number of bytes, or "6GiB", "1.5 GiB", "800MB".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quintet::config {

// Units B, KiB, MiB, GiB, TiB (powers of 1024) and KB, MB, GB, TB (of 1000), in any case, after an optional
// space; without a unit the number is bytes. A fraction is allowed and rounded down to whole bytes. Empty for
// anything else, for negative numbers and for more than 2^62 bytes.
std::optional<int64_t> parse_byte_size(std::string_view text);

// "6GiB" where a unit fits exactly, else the number of bytes: what parse_byte_size reads back to the same.
std::string byte_size_text(int64_t bytes);

}  // namespace quintet::config
