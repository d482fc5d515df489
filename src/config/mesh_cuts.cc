#include "config/mesh_cuts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "config/axis_order.h"
#include "config/context_parallel.h"
#include "config/names.h"

namespace quintet::config {
namespace {

constexpr std::array kStateAxes = {MeshAxis::Cp, MeshAxis::DpShard};  // those that shard parameters

}  // namespace

std::vector<Cut> mesh_cuts(const Parallel& p, const base::DimDemands& demands) {
  std::vector<Cut> cuts;
  const auto add = [&](int64_t size, std::string why, std::string key) {
    if (size > 1) cuts.push_back({size, std::move(why), std::move(key)});
  };
  const int64_t kv = base::demanded(demands, base::Dim::KvHeads);
  // "tp 2 x cp 2"
  const auto then = [](const std::string& before, std::string_view name, int64_t size) {
    return fmt::format("{}{}{} {}", before, before.empty() ? "" : " x ", name, size);
  };
  // Of equal sizes the first is kept: plain axes come before combinations.
  std::string all;
  std::map<MeshAxis, std::string> inside;  // the axes inside an axis
  for (const AxisSpan& span : axis_spans(p)) {
    inside[span.axis] = all;
    if (span.axis == MeshAxis::Pp) continue;
    all = then(all, name_of(span.axis), span.size);
    add(span.inner * span.size, all, fmt::format("parallel.{}", name_of(span.axis)));
  }
  add(inner_of(p, MeshAxis::Tp) * (p.tp / std::gcd(p.tp, kv)),
      fmt::format("{} over {} KV heads", then(inside[MeshAxis::Tp], "tp", p.tp), kv), "parallel.tp");
  for (const ContextMethod method : {p.cp_method, windowed_method(p)}) {
    const int64_t u = ulysses_ranks(p, method), u_rest = u / ulysses_kv_ranks(p, kv, method);
    const int64_t context = inner_of(p, MeshAxis::Cp);
    const std::string& before = inside[MeshAxis::Cp];
    add(context * u, then(before, "ulysses", u), "parallel.ulysses");
    add(context * u_rest,
        fmt::format("{}{}{} of ulysses {} with the same KV heads", before, before.empty() ? "" : " x ",
                    u_rest, u),
        "parallel.ulysses");
  }
  if (p.reshard_after_forward.kind == ReshardAfterForward::Kind::ToRanks) {
    const auto innermost =
        std::find_first_of(p.order.begin(), p.order.end(), kStateAxes.begin(), kStateAxes.end());
    add(reshard_blocks(p).front().outer,
        then(inside[*innermost], "reshard_after_forward", p.reshard_after_forward.ranks),
        "parallel.reshard_after_forward");
  }
  struct Part {
    int64_t inner, size;
    const char *name, *key;
  };
  const ExpertSpans at = expert_spans(p);
  std::array<Part, 3> parts = {{{at.etp, p.etp, "etp", "parallel.etp"},
                                {at.ep, p.ep, "ep", "parallel.ep"},
                                {at.copies, p.dp() * p.cp * p.tp / (p.ep * p.etp), "copies", "parallel.ep"}}};
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Part& a, const Part& b) { return a.inner < b.inner; });
  std::string experts;
  for (const Part& part : parts) {
    experts = then(experts, part.name, part.size);
    add(part.inner * part.size, experts, part.key);
  }
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
