// The stages of validation, for parse.cc and validate.cc.
#pragma once

#include <functional>
#include <string>

#include "config/recipe.h"
#include "config/report.h"

namespace quintet::config {

// Whether the recipe sets the key explicitly.
using Given = std::function<bool(const std::string& key)>;

// Derives every value that recipe.h declares optional, where possible.
void fill_in(Recipe& recipe, Report& report);

// Checks the limits of each key. A value of 0 that is not given counts as missing.
enum class Keys { Given, All };
void check_limits(const Recipe& recipe, const Given& given, Keys which, Report& report);

// Checks the rules that span keys (rules*.cc). A rule is skipped when one of its keys is invalid.
void check_rules(const Recipe& recipe, Report& report);

}  // namespace quintet::config
