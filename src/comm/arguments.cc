#include "comm/arguments.h"

#include "base/error.h"

namespace quintet::comm {

void check_count(const std::string& name, CallKind kind, int64_t count) {
  QUINTET_CHECK(count >= 0, "{} on '{}': count is {}", to_string(kind), name, count);
}

void check_member(const std::string& name, int size, CallKind kind, int member) {
  QUINTET_CHECK(member >= 0 && member < size, "{} on '{}': member {} of a group of {}", to_string(kind), name,
                member, size);
}

void check_ranges(const std::string& name, int size, const char* side, std::span<const int64_t> offsets,
                  std::span<const int64_t> counts) {
  const auto n = static_cast<size_t>(size);
  QUINTET_CHECK(offsets.size() == n && counts.size() == n,
                "all_to_all_v on '{}': {} offsets and {} counts of the {} side for a group of {}", name,
                offsets.size(), counts.size(), side, n);
  for (size_t j = 0; j < n; ++j)
    QUINTET_CHECK(counts[j] == 0 || (counts[j] > 0 && offsets[j] >= 0),
                  "all_to_all_v on '{}': the {} range of member {} has offset {} and count {}", name, side, j,
                  offsets[j], counts[j]);
}

}  // namespace quintet::comm
