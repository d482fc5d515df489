// The proportions of data.blend as whole numbers, exactly as the recipe spells them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "config/recipe.h"

namespace quintet::config {

// The largest sum of the whole numbers below: token counts of real data fit.
inline constexpr int64_t kMaxBlendSum = int64_t{1} << 60;

// The smallest whole numbers in the ratio of `weights`, whose shortest decimal spellings are taken as exact:
// 0.7 and 0.3 give 7 and 3. Nothing when a weight is not above 0, or their sum exceeds kMaxBlendSum.
std::optional<std::vector<int64_t>> whole_shares(std::span<const double> weights);

// Of the weights or the budgets of data.blend.
std::optional<std::vector<int64_t>> whole_shares(const std::vector<BlendSet>& blend);

}  // namespace quintet::config
