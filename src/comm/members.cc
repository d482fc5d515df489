#include "comm/members.h"

#include <fmt/format.h>

#include "base/error.h"

namespace quintet::comm {

int member_index(const std::vector<base::RankId>& members, base::RankId self, int world_size) {
  int index = -1;
  std::vector<bool> seen(static_cast<size_t>(world_size), false);
  for (size_t i = 0; i < members.size(); ++i) {
    const base::RankId r = members[i];
    QUINTET_CHECK(r.valid() && r.value < world_size, "group {}: rank {} is not in a world of {}",
                  members_text(members), r, world_size);
    QUINTET_CHECK(!seen[r.index()], "group {}: rank {} is named twice", members_text(members), r);
    seen[r.index()] = true;
    if (r == self) index = static_cast<int>(i);
  }
  QUINTET_CHECK(index >= 0, "group {}: rank {} is not a member of the group it creates",
                members_text(members), self);
  return index;
}

std::string members_text(const std::vector<base::RankId>& members) {
  constexpr size_t kShown = 8;
  std::string text = "[";
  for (size_t i = 0; i < members.size(); ++i) {
    if (members.size() > kShown && i == kShown - 1) {
      text += fmt::format(",..,{} ({} ranks)", members.back(), members.size());
      break;
    }
    text += fmt::format("{}{}", i ? "," : "", members[i]);
  }
  return text + "]";
}

}  // namespace quintet::comm
