#include "layout/layout.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.h"
#include "config/axis_order.h"
#include "config/context_parallel.h"
#include "config/demands.h"
#include "config/mesh_cuts.h"

namespace quintet::layout {

using graph::Dim;

namespace {

Axis axis_of(config::MeshAxis axis) {
  switch (axis) {
    case config::MeshAxis::Tp:
      return Axis::Tp;
    case config::MeshAxis::Cp:
      return Axis::Cp;
    case config::MeshAxis::DpShard:
      return Axis::DpShard;
    case config::MeshAxis::DpReplicate:
      return Axis::DpReplicate;
    case config::MeshAxis::Pp:
      return Axis::Pp;
    case config::MeshAxis::Ep:
      break;
  }
  base::fail_internal("ep is not an axis of the mesh");
}

// The ranks in order, split where a dim uses only a part of an axis (config/mesh_cuts.h).
Mesh make_mesh(const config::Parallel& p, const base::DimDemands& demands) {
  const std::vector<config::Cut> cuts = config::mesh_cuts(p, demands);
  std::vector<Atom> atoms;  // innermost first
  for (const config::AxisSpan& span : config::axis_spans(p)) {
    const Axis axis = axis_of(span.axis);
    if (axis == Axis::Pp) {  // no group divides it
      if (span.size > 1) atoms.push_back({axis, static_cast<int>(span.size)});
      continue;
    }
    const int64_t end = span.inner * span.size;
    int64_t at = span.inner;
    for (const config::Cut& cut : cuts)
      if (cut.size > at && cut.size <= end) {
        QUINTET_CHECK(cut.size % at == 0, "mesh cuts {} and {} have no common refinement", at, cut.size);
        atoms.push_back({axis, static_cast<int>(cut.size / at)});
        at = cut.size;
      }
    if (at < end) atoms.push_back({axis, static_cast<int>(end / at)});
  }
  std::reverse(atoms.begin(), atoms.end());
  return Mesh(std::move(atoms));
}

// The atoms that number the ranks of a stage from `inner` up to `outer`, counted from the innermost rank.
AtomList atoms_between(const Mesh& mesh, int64_t inner, int64_t outer) {
  AtomList list;
  int64_t at = 1;
  for (int a = mesh.num_atoms(); a-- > 0;) {
    if (mesh.atom(a).axis == Axis::Pp) continue;
    const int64_t next = at * mesh.atom(a).size;
    if (at >= inner && next <= outer && mesh.atom(a).size > 1) list.insert(list.begin(), a);
    at = next;
  }
  QUINTET_CHECK(mesh.size(list) == outer / inner, "ranks {} to {} are not whole atoms", inner, outer);
  return list;
}

Context make_context(const config::Parallel& p, config::ContextMethod method, int64_t model_kv_heads,
                     const Mesh& mesh) {
  const int64_t heads = config::ulysses_ranks(p, method),
                kv_heads = config::ulysses_kv_ranks(p, model_kv_heads, method),
                inner = config::inner_of(p, config::MeshAxis::Cp);
  using config::ContextMethod;
  return {.atoms = mesh.axis(Axis::Cp),
          .rows = atoms_between(mesh, inner * heads, inner * p.cp),
          .heads = atoms_between(mesh, inner, inner * heads),
          .kv_heads = atoms_between(mesh, inner * heads / kv_heads, inner * heads),
          .ring = method == ContextMethod::Ring || method == ContextMethod::UlyssesRing,
          .ranks = static_cast<int>(p.cp)};
}

// Ordered as the mesh is, outermost first.
AtomList in_mesh_order(AtomList atoms) {
  std::sort(atoms.begin(), atoms.end());
  return atoms;
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
                .windowed_context = {},
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
  layout.context = make_context(p, p.cp_method, kv_heads, mesh);
  layout.windowed_context = make_context(p, config::windowed_method(p), kv_heads, mesh);
  set(Dim::Tokens, concat(layout.samples, layout.context.atoms));
  for (const Dim d : {Dim::Heads, Dim::Ffn, Dim::Vocab}) set(d, layout.tensor);
  // Fewer KV heads than tp: the inner part of tp shares them.
  const int64_t tensor = config::inner_of(p, config::MeshAxis::Tp);
  set(Dim::KvHeads, atoms_between(mesh, tensor * (p.tp / std::gcd(p.tp, kv_heads)), tensor * p.tp));
  for (const base::DimDemand& d : demands)
    if (base::is_user_dim(d.dim) && config::ranks_of(p, d.dim) > 1) set(d.dim, layout.tensor);
  if (p.sequence_parallel) layout.sequence = layout.tensor;

  const config::ExpertSpans at = config::expert_spans(p);
  const int64_t copies = p.dp() * p.cp * p.tp / (p.ep * p.etp);
  layout.experts = {.ep = atoms_between(mesh, at.ep, at.ep * p.ep),
                    .etp = atoms_between(mesh, at.etp, at.etp * p.etp),
                    .edp = atoms_between(mesh, at.copies, at.copies * copies)};
  set(Dim::Experts, layout.experts.ep);
  set(Dim::ExpertFfn, layout.experts.etp);
  set(Dim::Routed, layout.experts.edp);

  layout.zero = static_cast<int>(p.zero);
  layout.dense.keep = p.reshard_after_forward.kind == config::ReshardAfterForward::Kind::No;
  layout.expert.keep = p.reshard_experts == config::ReshardExperts::Same
                           ? layout.dense.keep
                           : p.reshard_experts == config::ReshardExperts::Never;
  layout.grouping = p.group;
  layout.group_match = p.group_match;
  layout.keep_match = p.keep_match;
  layout.persist_match = p.persist_match;
  const auto override = [&](const char* key, const std::vector<std::string>& patterns, TensorSplit split) {
    for (const std::string& match : patterns) layout.tensor_overrides.push_back({key, match, split});
  };
  override("parallel.tp_column", p.tp_column, TensorSplit::Column);
  override("parallel.tp_row", p.tp_row, TensorSplit::Row);
  override("parallel.tp_replicate", p.tp_replicate, TensorSplit::Replicate);
  layout.gathered_limit = p.gathered_limit.value;
  layout.persist_below = p.persist_below.value;
  layout.prefetch = static_cast<int>(p.prefetch);
  layout.gradient_blocks = p.zero >= 2 ? static_cast<int>(p.gradient_blocks) : 1;
  layout.dense.all = in_mesh_order(layout.data());
  layout.expert.all = layout.experts.edp;
  if (p.zero >= 1) {  // replicas keep copies; all other ranks shard
    layout.dense.shard = without(layout.dense.all, layout.replicate);
    layout.expert.shard = without(layout.expert.all, layout.replicate);
  }
  if (p.zero_replicas >= 1)
    for (DataAtoms* data : {&layout.dense, &layout.expert})
      data->outer = intersection(data->all, layout.replicate);
  if (p.reshard_after_forward.kind == config::ReshardAfterForward::Kind::ToRanks) {
    for (const config::RankBlock& block : config::reshard_blocks(p))
      layout.dense.reshard = concat(layout.dense.reshard, atoms_between(mesh, block.inner, block.outer));
    // Copies of an expert on the same ranks; where there is none, experts are resharded over all.
    if (p.reshard_experts == config::ReshardExperts::Same)
      layout.expert.reshard = intersection(layout.expert.all, concat(layout.tensor, layout.dense.reshard));
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
  p.flat = (is_expert_param(type) ? layout.expert : layout.dense).state();
  return p;
}

bool is_expert_param(const graph::Type& type) {
  return std::any_of(type.dims.begin(), type.dims.end(),
                     [](const graph::DimSize& d) { return d.name == Dim::Experts; });
}

}  // namespace quintet::layout
