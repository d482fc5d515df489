#include "config/mesh_cuts.h"

#include <algorithm>
#include <numeric>

namespace quintet::config {

int64_t ulysses_ranks(const Parallel& p) {
  if (p.cp_method == ContextMethod::Ulysses) return p.cp;
  if (p.cp_method == ContextMethod::UlyssesRing) return std::max<int64_t>(p.ulysses, 1);
  return 1;
}

int64_t attention_kv_heads(const Model& model) {
  return model.mla.kv_rank > 0 ? model.heads : model.kv_heads;
}

int64_t ulysses_kv_ranks(const Parallel& p, const Model& model) {
  const int64_t heads = attention_kv_heads(model);
  return heads % p.tp == 0 ? std::gcd(ulysses_ranks(p), heads / p.tp) : 1;
}

std::vector<Cut> mesh_cuts(const Parallel& p, const Model& model) {
  std::vector<Cut> cuts;
  const auto add = [&](int64_t size, std::string why) { cuts.push_back({size, std::move(why)}); };
  const int64_t ulysses = ulysses_ranks(p);
  add(p.tp / std::gcd(p.tp, attention_kv_heads(model)), "tp ranks that share a KV head");
  add(p.tp, "tp");
  add(p.tp * (ulysses / ulysses_kv_ranks(p, model)), "Ulysses ranks that share a KV head");
  add(p.tp * ulysses, "Ulysses ranks");
  add(p.tp * p.cp, "cp");
  if (p.reshard_after_forward.kind == ReshardAfterForward::Kind::ToRanks)
    add(p.tp * p.reshard_after_forward.ranks, "reshard_after_forward");
  add(p.tp * p.cp * p.dp_shard, "dp_shard");
  add(p.tp * p.cp * p.dp(), "dp_replicate");
  add(p.world(), "pp");
  add(p.etp, "etp");
  add(p.etp * p.ep, "ep");
  std::stable_sort(cuts.begin(), cuts.end(), [](const Cut& a, const Cut& b) { return a.size < b.size; });
  cuts.erase(
      std::unique(cuts.begin(), cuts.end(), [](const Cut& a, const Cut& b) { return a.size == b.size; }),
      cuts.end());
  return cuts;
}

}  // namespace quintet::config
