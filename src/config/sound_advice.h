// Makes sure that whoever follows a suggestion gets a legal recipe.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "config/problem.h"

namespace quintet::config {

// The problems of the recipe with these overrides on top ("parallel.tp=4"); throws no RecipeError.
using Attempt = std::function<std::vector<Problem>(const std::vector<std::string>& overrides)>;

// A rule suggests values that satisfy that rule. Each value suggested for a problem's own key is tried: it
// must repair the problem and cause no other. If it does not, it is replaced by the nearest numbers that do,
// or joined by what else must change ("3 with parallel.tp = 1"), or left out. Suggestions in words stay, and
// so do those for wrong types and limits: after these problems the rules that read the key do not run, so
// there is nothing to try.
void make_advice_sound(std::vector<Problem>& problems, const Attempt& attempt);

}  // namespace quintet::config
