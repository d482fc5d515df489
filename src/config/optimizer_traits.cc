#include "config/optimizer_traits.h"

#include <algorithm>
#include <array>

namespace quintet::config {
namespace {

using Kind = OptimizerKind;

// Keys by optimizer, without "optimizer.".
#define QUINTET_OPTIMIZER(kind, name, moments, rounds, ...) \
  constexpr std::string_view k##kind##Keys[] = {__VA_ARGS__};
#include "config/optimizers.inc"

constexpr auto kTraits = std::to_array<OptimizerTraits>({
#define QUINTET_OPTIMIZER(kind, name, moments, rounds, ...) \
  {Kind::kind, #name, k##kind##Keys, StoredMoments::moments, rounds},
#include "config/optimizers.inc"
});

bool has(const OptimizerTraits& t, std::string_view key) {
  constexpr std::string_view kSection = "optimizer.";
  return key.starts_with(kSection) &&
         std::find(t.keys.begin(), t.keys.end(), key.substr(kSection.size())) != t.keys.end();
}

}  // namespace

std::span<const OptimizerTraits> optimizer_traits() { return kTraits; }

bool reads_key(const Optimizer& optimizer, std::string_view key) {
  return optimizer.uses(Kind::Custom) ||
         std::any_of(kTraits.begin(), kTraits.end(),
                     [&](const OptimizerTraits& t) { return has(t, key) && optimizer.uses(t.kind); });
}

bool stores_moments(const Optimizer& optimizer) {
  return optimizer.uses(Kind::Custom) ||
         std::any_of(kTraits.begin(), kTraits.end(), [&](const OptimizerTraits& t) {
           return optimizer.uses(t.kind) &&
                  (t.moments == StoredMoments::Always ||
                   (t.moments == StoredMoments::WithMomentum && optimizer.momentum > 0));
         });
}

std::vector<std::string_view> optimizers_that_read(std::string_view key) {
  std::vector<std::string_view> names;
  for (const OptimizerTraits& t : kTraits)
    if (has(t, key)) names.push_back(t.name);
  return names;
}

bool belongs_to_optimizers(std::string_view key) {
  return std::any_of(kTraits.begin(), kTraits.end(), [&](const OptimizerTraits& t) { return has(t, key); });
}

}  // namespace quintet::config
