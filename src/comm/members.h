// Validation of member lists, shared by the backends.
#pragma once

#include <string>
#include <vector>

#include "base/ids.h"

namespace quintet::comm {

// The index of `self` in `members`. Throws InternalError unless they are distinct ranks of the world and
// include self.
int member_index(const std::vector<base::RankId>& members, base::RankId self, int world_size);

// "[0,2,4]"; long lists are shortened in the middle.
std::string members_text(const std::vector<base::RankId>& members);

}  // namespace quintet::comm
