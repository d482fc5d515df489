// Suggestions of legal values for error messages (for words: base/text.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quintet::config {

// The known dotted key closest to an unknown one: by case-insensitive spelling, or the same last part in
// another section.
std::string nearest_key(std::string_view key, const std::vector<std::string>& known);

// The divisors of n nearest to v on either side: "2 or 4". Requires n and v positive.
std::string nearest_divisors(int64_t n, int64_t v);

// The multiples of m (at least m) nearest to v on either side: "8 or 12".
std::string nearest_multiples(int64_t m, int64_t v);

}  // namespace quintet::config
