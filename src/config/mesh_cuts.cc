#include "config/mesh_cuts.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "config/context_parallel.h"

namespace quintet::config {

std::vector<Cut> mesh_cuts(const Parallel& p, const base::DimDemands& demands) {
  std::vector<Cut> cuts;
  const auto add = [&](int64_t size, std::string why, const char* key) {
    if (size > 1) cuts.push_back({size, std::move(why), key});
  };
  const int64_t kv = base::demanded(demands, base::Dim::KvHeads);
  const int64_t u = ulysses_ranks(p), u_rest = u / ulysses_kv_ranks(p, kv);
  // Of equal sizes the first is kept: plain axes come before combinations.
  const int64_t context = p.tp * p.cp, shard = context * p.dp_shard, data = shard * p.dp_replicate;
  add(p.tp, fmt::format("tp {}", p.tp), "parallel.tp");
  add(context, fmt::format("tp {} x cp {}", p.tp, p.cp), "parallel.cp");
  add(shard, fmt::format("tp {} x cp {} x dp_shard {}", p.tp, p.cp, p.dp_shard), "parallel.dp_shard");
  add(data, fmt::format("tp x cp x dp_shard {} x dp_replicate {}", shard, p.dp_replicate),
      "parallel.dp_replicate");
  add(data * p.pp, fmt::format("all {} ranks", data * p.pp), "parallel.pp");
  add(p.tp / std::gcd(p.tp, kv), fmt::format("tp {} over {} KV heads", p.tp, kv), "parallel.tp");
  add(p.tp * u, fmt::format("tp {} x ulysses {}", p.tp, u), "parallel.ulysses");
  add(p.tp * u_rest, fmt::format("tp {} x {} of ulysses {} with the same KV heads", p.tp, u_rest, u),
      "parallel.ulysses");
  if (p.reshard_after_forward.kind == ReshardAfterForward::Kind::ToRanks)
    add(p.tp * p.reshard_after_forward.ranks,
        fmt::format("tp {} x reshard_after_forward {}", p.tp, p.reshard_after_forward.ranks),
        "parallel.reshard_after_forward");
  add(p.etp, fmt::format("etp {}", p.etp), "parallel.etp");
  add(p.etp * p.ep, fmt::format("etp {} x ep {}", p.etp, p.ep), "parallel.ep");
  std::stable_sort(cuts.begin(), cuts.end(), [](const Cut& a, const Cut& b) { return a.size < b.size; });
  cuts.erase(
      std::unique(cuts.begin(), cuts.end(), [](const Cut& a, const Cut& b) { return a.size == b.size; }),
      cuts.end());
  return cuts;
}

size_t first_bad_cut(const std::vector<Cut>& cuts) {
  for (size_t i = 0; i + 1 < cuts.size(); ++i)
    if (cuts[i + 1].size % cuts[i].size != 0) return i;
  return cuts.size();
}

}  // namespace quintet::config
