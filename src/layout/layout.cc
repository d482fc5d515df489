#include "layout/layout.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.h"
#include "config/context_parallel.h"
#include "config/demands.h"
#include "config/mesh_cuts.h"

namespace quintet::layout {

using graph::Dim;

namespace {

// The ranks in order, split where a dim uses only a part of an axis (config/mesh_cuts.h).
Mesh make_mesh(const config::Parallel& p, const base::DimDemands& demands) {
  struct Sized {
    Axis axis;
    int64_t size;
  };
  const std::array<Sized, 5> axes = {{{Axis::Tp, p.tp},
                                      {Axis::Cp, p.cp},
                                      {Axis::DpShard, p.dp_shard},
                                      {Axis::DpReplicate, p.dp_replicate},
                                      {Axis::Pp, p.pp}}};
  const std::vector<config::Cut> cuts = config::mesh_cuts(p, demands);
  std::vector<Atom> atoms;  // innermost first
  int64_t inner = 1;
  for (const auto& [axis, size] : axes) {
    const int64_t end = inner * size;
    int64_t at = inner;
    for (const config::Cut& cut : cuts)
      if (cut.size > at && cut.size <= end) {
        QUINTET_CHECK(cut.size % at == 0, "mesh cuts {} and {} have no common refinement", at, cut.size);
        atoms.push_back({axis, static_cast<int>(cut.size / at)});
        at = cut.size;
      }
    if (at < end) atoms.push_back({axis, static_cast<int>(end / at)});
    inner = end;
  }
  std::reverse(atoms.begin(), atoms.end());
  return Mesh(std::move(atoms));
}

// The atoms that number the ranks from `inner` up to `outer`, counted from the innermost rank.
AtomList atoms_between(const Mesh& mesh, int64_t inner, int64_t outer) {
  AtomList list;
  int64_t at = 1;
  for (int a = mesh.num_atoms(); a-- > 0;) {
    const int64_t next = at * mesh.atom(a).size;
    if (at >= inner && next <= outer && mesh.atom(a).size > 1) list.insert(list.begin(), a);
    at = next;
  }
  QUINTET_CHECK(mesh.size(list) == outer / inner, "ranks {} to {} are not whole atoms", inner, outer);
  return list;
}

Context make_context(const config::Parallel& p, int64_t model_kv_heads, const Mesh& mesh) {
  const int64_t heads = config::ulysses_ranks(p), kv_heads = config::ulysses_kv_ranks(p, model_kv_heads);
  using config::ContextMethod;
  return {.atoms = mesh.axis(Axis::Cp),
          .rows = atoms_between(mesh, p.tp * heads, p.tp * p.cp),
          .heads = atoms_between(mesh, p.tp, p.tp * heads),
          .kv_heads = atoms_between(mesh, p.tp * heads / kv_heads, p.tp * heads),
          .ring = p.cp_method == ContextMethod::Ring || p.cp_method == ContextMethod::UlyssesRing,
          .ranks = static_cast<int>(p.cp)};
}

}  // namespace

AtomList Layout::everything() const {
  AtomList list;
  for (int a = 0; a < mesh.num_atoms(); ++a)
    if (mesh.atom(a).size > 1) list.push_back(a);
  return list;
}

base::DimDemands demands_of(const graph::Graph& graph) {
  std::set<Dim> padded, exact;  // by some op; a dim that every op pads may have any size
  for (const graph::Node& node : graph.nodes()) {
    if (node.op->dims == nullptr) continue;
    for (const graph::OpDim& d :
         node.op->dims(graph::input_types(graph, node), graph::output_types(graph, node), node.attrs))
      (d.padded ? padded : exact).insert(d.key);
  }
  std::map<std::pair<Dim, int64_t>, base::DimNeed> found;
  for (const graph::Value& value : graph.values())
    for (const auto& [dim, size] : value.type.dims) {
      const bool divisible = dim == Dim::Heads || dim == Dim::KvHeads || dim == Dim::Ffn ||
                             dim == Dim::Vocab || dim == Dim::Experts || dim == Dim::ExpertFfn ||
                             base::is_user_dim(dim);
      if (!divisible) continue;
      found[{dim, size}] = dim == Dim::KvHeads                            ? base::DimNeed::Share
                           : padded.contains(dim) && !exact.contains(dim) ? base::DimNeed::Pad
                                                                          : base::DimNeed::Divide;
    }
  base::DimDemands demands;
  for (const auto& [key, need] : found) demands.push_back({key.first, key.second, need});
  return demands;
}

Layout make_layout(const config::Parallel& p, const config::Model& model) {
  return make_layout(p, config::demands(model));
}

Layout make_layout(const config::Parallel& p, const base::DimDemands& demands) {
  Layout layout{.mesh = make_mesh(p, demands),
                .dims = {},
                .samples = {},
                .tensor = {},
                .sequence = {},
                .pipeline = {},
                .replicate = {},
                .context = {},
                .experts = {},
                .dense = {},
                .expert = {}};
  const Mesh& mesh = layout.mesh;
  const auto set = [&](Dim d, AtomList atoms) { layout.dims[d] = std::move(atoms); };
  layout.tensor = mesh.axis(Axis::Tp);
  layout.pipeline = mesh.axis(Axis::Pp);
  layout.replicate = mesh.axis(Axis::DpReplicate);
  layout.samples = concat(layout.replicate, mesh.axis(Axis::DpShard));
  const int64_t kv_heads = base::demanded(demands, Dim::KvHeads);
  layout.context = make_context(p, kv_heads, mesh);
  set(Dim::Tokens, concat(layout.samples, layout.context.atoms));
  set(Dim::Context, layout.context.rows);
  for (const Dim d : {Dim::Heads, Dim::Ffn, Dim::Vocab}) set(d, layout.tensor);
  // Fewer KV heads than tp: the inner part of tp shares them.
  set(Dim::KvHeads, atoms_between(mesh, p.tp / std::gcd(p.tp, kv_heads), p.tp));
  for (const base::DimDemand& d : demands)
    if (base::is_user_dim(d.dim) && config::ranks_of(p, d.dim) > 1) set(d.dim, layout.tensor);
  if (p.sequence_parallel) layout.sequence = layout.tensor;

  const int64_t stage = p.dp() * p.cp * p.tp;
  layout.experts = {.ep = atoms_between(mesh, p.etp, p.etp * p.ep),
                    .etp = atoms_between(mesh, 1, p.etp),
                    .edp = atoms_between(mesh, p.etp * p.ep, stage)};
  set(Dim::Experts, layout.experts.ep);
  set(Dim::ExpertFfn, layout.experts.etp);
  set(Dim::Routed, layout.experts.edp);

  layout.zero = static_cast<int>(p.zero);
  layout.keep_gathered = p.reshard_after_forward.kind == config::ReshardAfterForward::Kind::No;
  layout.prefetch = static_cast<int>(p.prefetch);
  layout.gradient_blocks = p.zero >= 2 ? static_cast<int>(p.gradient_blocks) : 1;
  layout.dense.all = layout.data();
  layout.expert.all = layout.experts.edp;
  if (p.zero >= 1) {  // replicas keep copies; all other ranks shard
    layout.dense.shard = without(layout.dense.all, layout.replicate);
    layout.expert.shard = without(layout.expert.all, layout.replicate);
  }
  if (p.reshard_after_forward.kind == config::ReshardAfterForward::Kind::ToRanks) {
    const int64_t near = p.tp * p.reshard_after_forward.ranks, expert = p.etp * p.ep;
    layout.dense.reshard = atoms_between(mesh, p.tp, near);
    // Copies of an expert on the same `near` ranks; where there is none, experts are resharded over all.
    if (near > expert) layout.expert.reshard = atoms_between(mesh, expert, near);
  }
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

Placement storage_of(const Layout& layout, const graph::Type& type) {
  Placement p = param_placement(layout, type);
  p.flat = (is_expert_param(type) ? layout.expert : layout.dense).shard;
  return p;
}

bool is_expert_param(const graph::Type& type) {
  return std::any_of(type.dims.begin(), type.dims.end(),
                     [](const graph::DimSize& d) { return d.name == Dim::Experts; });
}

}  // namespace quintet::layout
