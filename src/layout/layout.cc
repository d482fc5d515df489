#include "layout/layout.h"

#include <numeric>

#include "base/error.h"

namespace quintet::layout {

using graph::Dim;

Layout make_layout(const config::Parallel& p, int64_t kv_heads) {
  // tp is cut where KV heads are fewer than its ranks; dp_shard where a part of it keeps copies for the
  // backward.
  const int tp = static_cast<int>(p.tp);
  const int tp_kv = static_cast<int>(std::gcd(p.tp, kv_heads));
  const bool to_ranks = p.reshard_after_forward.kind == config::ReshardAfterForward::Kind::ToRanks;
  const int inner = to_ranks ? static_cast<int>(p.reshard_after_forward.ranks) : 1;
  const std::vector<Atom> atoms = {{"pp", static_cast<int>(p.pp)},
                                   {"dp_replicate", static_cast<int>(p.dp_replicate)},
                                   {"dp_shard", static_cast<int>(p.dp_shard) / inner},
                                   {"dp_shard", inner},
                                   {"tp", tp_kv},
                                   {"tp", tp / tp_kv}};
  constexpr int kInnerShard = 3, kTensorKv = 4;
  Layout layout{.mesh = Mesh(atoms),
                .dims = {},
                .sequence = {},
                .pipeline = {},
                .replicate = {},
                .shard = {},
                .reshard = {}};
  const Mesh& mesh = layout.mesh;
  const AtomList tensor = mesh.axis("tp");
  layout.dims[static_cast<size_t>(Dim::Tokens)] = concat(mesh.axis("dp_replicate"), mesh.axis("dp_shard"));
  for (const Dim d : {Dim::Heads, Dim::Ffn, Dim::Vocab}) layout.dims[static_cast<size_t>(d)] = tensor;
  if (tp_kv > 1) layout.dims[static_cast<size_t>(Dim::KvHeads)] = {kTensorKv};
  if (p.sequence_parallel) layout.sequence = tensor;
  layout.zero = static_cast<int>(p.zero);
  layout.pipeline = mesh.axis("pp");
  layout.replicate = mesh.axis("dp_replicate");
  if (p.zero >= 1) layout.shard = mesh.axis("dp_shard");
  if (to_ranks) layout.reshard = {kInnerShard};
  layout.keep_gathered = p.reshard_after_forward.kind == config::ReshardAfterForward::Kind::No;
  layout.prefetch = static_cast<int>(p.prefetch);
  return layout;
}

Placement param_placement(const Layout& layout, const graph::Type& type) {
  Placement p = replicated(type.num_dims());
  AtomList claimed;
  for (size_t d = 0; d < type.dims.size(); ++d) {
    if (type.dims[d].name == Dim::Tokens) continue;
    p.dims[d] = without(layout.atoms(type.dims[d].name), claimed);
    claimed = concat(claimed, p.dims[d]);
  }
  return p;
}

}  // namespace quintet::layout
