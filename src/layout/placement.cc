#include "layout/placement.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace quintet::layout {
namespace {

size_t common_prefix(const AtomList& a, const AtomList& b) {
  size_t n = 0;
  while (n < a.size() && n < b.size() && a[n] == b[n]) ++n;
  return n;
}

AtomList tail(const AtomList& list, size_t from) {
  return {list.begin() + static_cast<ptrdiff_t>(from), list.end()};
}

// Atoms [begin, end) of a dim that belong to dim `target` next; an empty run at `keep` when there are none.
struct Move {
  size_t begin, end, target;
};
Move last_move(const Placement& now, const Placement& to, size_t d, size_t keep) {
  const AtomList& atoms = now.dims[d];
  for (size_t end = atoms.size(); end > keep; --end)
    for (size_t begin = keep; begin < end; ++begin)
      for (size_t e = 0; e < now.dims.size(); ++e) {
        if (e == d) continue;
        AtomList grown = now.dims[e];
        grown.insert(grown.end(), atoms.begin() + static_cast<ptrdiff_t>(begin),
                     atoms.begin() + static_cast<ptrdiff_t>(end));
        if (common_prefix(grown, to.dims[e]) == grown.size()) return {begin, end, e};
      }
  return {keep, keep, 0};
}

}  // namespace

Placement replicated(int num_dims) {
  return {.dims = std::vector<AtomList>(static_cast<size_t>(num_dims)), .partial = {}};
}

std::string to_string(const Placement& p, const graph::Type& type, const Mesh& mesh) {
  std::string text;
  for (size_t d = 0; d < p.dims.size(); ++d)
    if (!p.dims[d].empty())
      text += fmt::format("{}{}/{}", text.empty() ? "" : " ", graph::to_string(type.dims[d].name),
                          mesh.name(p.dims[d]));
  if (!p.flat.empty()) text += fmt::format("{}flat/{}", text.empty() ? "" : " ", mesh.name(p.flat));
  if (!p.partial.empty())
    text += fmt::format("{}partial {} over {}", text.empty() ? "" : " ",
                        p.reduction == graph::Reduction::Sum ? "sum" : "max", mesh.name(p.partial));
  return text.empty() ? "replicated" : text;
}

int64_t shard_size(int64_t global, int parts) { return (global + parts - 1) / parts; }

graph::Type local_type(const graph::Type& global, const Placement& p, const Mesh& mesh) {
  graph::Type local = global;
  for (size_t d = 0; d < p.dims.size(); ++d)
    local.dims[d].size = shard_size(global.dims[d].size, mesh.size(p.dims[d]));
  return local;
}

std::vector<Transition> redistribute(const Placement& from, const Placement& to) {
  QUINTET_CHECK(from.dims.size() == to.dims.size(), "placements of different values");
  QUINTET_CHECK(from.flat == to.flat, "flat ranges are gathered and scattered by groups, not by value");
  std::vector<Transition> steps;
  Placement now = from;
  const auto push = [&](Transition t) {
    t.after = now;
    steps.push_back(std::move(t));
  };

  // Removes what the target does not have here, from the minor end: a run of atoms that another dim needs
  // next moves there by all-to-all; atoms after the run, and those that cannot move, are gathered.
  for (size_t d = 0; d < now.dims.size(); ++d) {
    for (size_t keep; (keep = common_prefix(now.dims[d], to.dims[d])) < now.dims[d].size();) {
      const Move move = last_move(now, to, d, keep);
      if (move.end < now.dims[d].size()) {
        const AtomList excess = tail(now.dims[d], move.end);
        now.dims[d].resize(move.end);
        push({.kind = Transition::Kind::AllGather, .atoms = excess, .dim = static_cast<int>(d), .after = {}});
      }
      if (move.begin == move.end) continue;
      const AtomList run = tail(now.dims[d], move.begin);
      now.dims[d].resize(move.begin);
      now.dims[move.target] = concat(now.dims[move.target], run);
      push({.kind = Transition::Kind::AllToAll,
            .atoms = run,
            .dim = static_cast<int>(d),
            .split = static_cast<int>(move.target),
            .after = {}});
    }
  }

  // Every dim is now a prefix of its target. Append atoms: scattering where a sum is still open, slicing
  // otherwise.
  AtomList open = without(now.partial, to.partial);
  for (size_t d = 0; d < now.dims.size(); ++d) {
    while (now.dims[d].size() < to.dims[d].size()) {
      const bool scatter = contains(open, to.dims[d][now.dims[d].size()]);
      AtomList run;
      while (now.dims[d].size() < to.dims[d].size() &&
             contains(open, to.dims[d][now.dims[d].size()]) == scatter) {
        run.push_back(to.dims[d][now.dims[d].size()]);
        now.dims[d].push_back(run.back());
      }
      if (scatter) {
        open = without(open, run);
        now.partial = without(now.partial, run);
      }
      push({.kind = scatter ? Transition::Kind::ReduceScatter : Transition::Kind::Slice,
            .atoms = run,
            .dim = static_cast<int>(d),
            .reduction = from.reduction,
            .after = {}});
    }
  }
  if (!open.empty()) {
    now.partial = without(now.partial, open);
    push({.kind = Transition::Kind::AllReduce, .atoms = open, .reduction = from.reduction, .after = {}});
  }
  const AtomList opened = without(to.partial, now.partial);
  if (!opened.empty()) {
    QUINTET_CHECK(to.reduction == graph::Reduction::Sum, "only sums can be opened");
    now.partial = set_union(now.partial, opened);
    push({.kind = Transition::Kind::ZeroUnlessFirst, .atoms = opened, .after = {}});
  }
  return steps;
}

}  // namespace quintet::layout
