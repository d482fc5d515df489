#include "config/demands.h"

#include <algorithm>

#include "config/context_parallel.h"

namespace quintet::config {

using base::Dim;
using base::DimNeed;

base::DimDemands demands(const Model& m) {
  if (m.family == Family::Custom) return m.demands;
  base::DimDemands list;
  const auto add = [&](Dim dim, int64_t size, DimNeed need) {
    const base::DimDemand demand{dim, size, need};
    if (size > 0 && std::find(list.begin(), list.end(), demand) == list.end()) list.push_back(demand);
  };
  add(Dim::Heads, m.heads, DimNeed::Divide);
  add(Dim::KvHeads, attention_kv_heads(m), DimNeed::Share);
  // Of dense blocks and of shared experts, the smaller one first.
  int64_t widths[] = {m.has_dense_block() ? m.ffn : 0, m.moe.experts > 0 ? m.moe.shared_ffn : 0};
  std::sort(std::begin(widths), std::end(widths));
  for (const int64_t ffn : widths) add(Dim::Ffn, ffn, DimNeed::Divide);
  add(Dim::Vocab, m.vocab, DimNeed::Pad);
  add(Dim::Experts, m.moe.experts, DimNeed::Divide);
  if (m.moe.experts > 0) add(Dim::ExpertFfn, m.moe.ffn, DimNeed::Divide);
  return list;
}

int64_t ranks_of(const Parallel& p, Dim dim) {
  switch (dim) {
    case Dim::Heads:
    case Dim::KvHeads:
    case Dim::Ffn:
    case Dim::Vocab:
      return p.tp;
    case Dim::Experts:
      return p.ep;
    case Dim::ExpertFfn:
      return p.etp;
    default:
      break;
  }
  if (!base::is_user_dim(dim)) return 1;
  const auto axis = p.dims.find(std::string(base::to_string(dim)));
  return axis != p.dims.end() && axis->second == DimAxis::Tp ? p.tp : 1;
}

const char* axis_key(Dim dim) {
  if (dim == Dim::Experts) return "parallel.ep";
  return dim == Dim::ExpertFfn ? "parallel.etp" : "parallel.tp";
}

}  // namespace quintet::config
