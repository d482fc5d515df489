// What to offer in place of a number that breaks rules: one that breaks none of them.
#pragma once

#include <vector>

#include "config/rule.h"

namespace quintet::config {

// Each rule offers the nearest numbers that it would take itself. Where one of them would break a rule of the
// list, all offers for that key become the nearest numbers below and above for which no rule blames the key,
// all other keys as they are; when none is near, the offers stay. Keys of
// [batch] keep theirs: one number of it follows from the others.
void suggest_jointly(const Recipe& recipe, const std::vector<const Rule*>& rules,
                     std::vector<Problem>& problems);

}  // namespace quintet::config
