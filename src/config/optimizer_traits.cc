#include "config/optimizer_traits.h"

#include <algorithm>
#include <array>

namespace quintet::config {
namespace {

using Key = std::string_view;
using Kind = OptimizerKind;

constexpr std::array<Key, 2> kAdam = {"optimizer.betas", "optimizer.eps"};
constexpr std::array<Key, 3> kAdamW8bit = {"optimizer.betas", "optimizer.eps", "optimizer.block_size"};
constexpr std::array<Key, 2> kSgd = {"optimizer.momentum", "optimizer.nesterov"};
constexpr std::array<Key, 1> kLion = {"optimizer.betas"};
constexpr std::array<Key, 5> kMuon = {"optimizer.betas", "optimizer.eps", "optimizer.muon.momentum",
                                      "optimizer.muon.nesterov", "optimizer.muon.scale"};
constexpr std::array<Key, 3> kLamb = {"optimizer.betas", "optimizer.eps", "optimizer.ratio_limits"};
constexpr std::array<Key, 3> kLars = {"optimizer.momentum", "optimizer.trust", "optimizer.ratio_limits"};
constexpr std::array<Key, 5> kAdafactor = {"optimizer.adafactor.decay", "optimizer.adafactor.eps1",
                                           "optimizer.adafactor.eps2", "optimizer.adafactor.clip",
                                           "optimizer.adafactor.relative"};

constexpr std::array<OptimizerTraits, 9> kTraits = {{
    {Kind::AdamW, kAdam},
    {Kind::Adam, kAdam},
    {Kind::AdamW8bit, kAdamW8bit, StoredMoments::Always, /*rounds_moments=*/false},
    {Kind::Sgd, kSgd, StoredMoments::WithMomentum},
    {Kind::Lion, kLion},
    {Kind::Muon, kMuon},
    {Kind::Lamb, kLamb},
    {Kind::Lars, kLars, StoredMoments::WithMomentum},
    {Kind::Adafactor, kAdafactor, StoredMoments::Never, /*rounds_moments=*/false},
}};

bool has(const OptimizerTraits& t, Key key) {
  return std::find(t.keys.begin(), t.keys.end(), key) != t.keys.end();
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

bool belongs_to_optimizers(std::string_view key) {
  return std::any_of(kTraits.begin(), kTraits.end(), [&](const OptimizerTraits& t) { return has(t, key); });
}

}  // namespace quintet::config
