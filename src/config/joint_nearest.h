// Suggests a value that violates no rule, instead of one that only satisfies the rule that was violated.
#pragma once

#include <vector>

#include "config/rule.h"

namespace quintet::config {

// Each rule suggests the nearest values that satisfy itself. If one of them would violate another rule, all
// suggestions for that key are replaced by the nearest values below and above that violate no rule, with all
// other keys unchanged; if there is none nearby, the suggestions stay. Keys of [batch] are skipped: their
// values are derived from each other.
void suggest_jointly(const Recipe& recipe, const std::vector<const Rule*>& rules,
                     std::vector<Problem>& problems);

}  // namespace quintet::config
