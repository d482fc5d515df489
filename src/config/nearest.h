// The nearest legal thing to an illegal one, for messages (of words: base/text.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quintet::config {

// The known dotted key nearest to an unknown one: by spelling in any case, or the same last part in another
// section.
std::string nearest_key(std::string_view key, const std::vector<std::string>& known);

// Divisors of n next to v on either side: "2 or 4". n and v must be positive.
std::string nearest_divisors(int64_t n, int64_t v);

// Multiples of m (at least m) next to v on either side: "8 or 12".
std::string nearest_multiples(int64_t m, int64_t v);

}  // namespace quintet::config
