#include "train/fp8_report.h"

#include <vector>

namespace quintet::train {

Roundings roundings_of(std::span<const Rank::Sum> sums, std::span<const graph::ScaleDecl> scales) {
  Roundings all;
  for (const Rank::Sum& sum : sums) {
    if (sum.kind != graph::SumKind::Rounded) continue;
    Rounding& r = all[static_cast<size_t>(scales[static_cast<size_t>(sum.scale)].of)];
    r.values += sum.values[0];
    r.saturated += sum.values[1];
    r.zeroed += sum.values[2];
  }
  return all;
}

void add_roundings(observe::Record& record, const Rank& rank) {
  const std::vector<graph::ScaleDecl>& scales = rank.compiled().logical.scales;
  if (scales.empty()) return;
  const Roundings all = roundings_of(rank.step_sums(), scales);
  std::vector<observe::Record> list(all.size());
  for (size_t i = 0; i < all.size(); ++i)
    list[i]
        .set("operand", to_string(static_cast<graph::ScaleOf>(i)))
        .set("saturated", all[i].saturated_share())
        .set("underflowed", all[i].zeroed_share());
  record.set("fp8", std::span<const observe::Record>(list));
}

}  // namespace quintet::train
