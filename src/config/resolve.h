// The steps of checking, for parse.cc and validate.cc.
#pragma once

#include <functional>
#include <string>

#include "config/recipe.h"
#include "config/report.h"

namespace quintet::config {

// Whether the author of the recipe wrote the key.
using Given = std::function<bool(const std::string& key)>;

// Works out every number and word that recipe.h says may be left open. Leaves alone what cannot be worked
// out.
void fill_in(Recipe& recipe, Report& report);

// Limits of each key by itself. A value of 0 that nobody gave counts as missing.
enum class Keys { Given, All };
void check_limits(const Recipe& recipe, const Given& given, Keys which, Report& report);

// The rules that span keys (rules.cc). A rule is passed over when one of its keys is spoiled.
void check_rules(const Recipe& recipe, Report& report);

}  // namespace quintet::config
