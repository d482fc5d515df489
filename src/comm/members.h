// What every backend does with a list of members before it makes a communicator.
#pragma once

#include <string>
#include <vector>

#include "base/ids.h"

namespace quintet::comm {

// The index of `self` in `members`; an InternalError unless they are distinct ranks of the world with self
// among them.
int member_index(const std::vector<base::RankId>& members, base::RankId self, int world_size);

// "[0,2,4]", shortened in the middle when long.
std::string members_text(const std::vector<base::RankId>& members);

}  // namespace quintet::comm
