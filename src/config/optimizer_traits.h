// What rules and documentation know of each optimizer: one row per optimizer (optimizers.inc).
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "config/recipe.h"

namespace quintet::config {

// Whether precision.moments is the type of something that an optimizer stores.
enum class StoredMoments : uint8_t { Always, WithMomentum, Never };

struct OptimizerTraits {
  OptimizerKind kind;
  std::string_view name;
  // Keys of [optimizer] that it reads, of those that some optimizers do not; without "optimizer.".
  std::span<const std::string_view> keys;
  StoredMoments moments = StoredMoments::Always;
  bool rounds_moments = true;  // precision.moments_rounding applies to its moments
};

std::span<const OptimizerTraits> optimizer_traits();

// Whether the optimizer of some parameters reads the key. A custom one may read any.
bool reads_key(const Optimizer& optimizer, std::string_view key);
// Whether the optimizer of some parameters stores moments as precision.moments. A custom one may.
bool stores_moments(const Optimizer& optimizer);
// Names of the optimizers that read the key; empty: not one of those that belong to some optimizers only.
std::vector<std::string_view> optimizers_that_read(std::string_view key);
// Whether the key belongs to some optimizers only.
bool belongs_to_optimizers(std::string_view key);

}  // namespace quintet::config
