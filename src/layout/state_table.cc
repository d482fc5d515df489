#include "layout/state_table.h"

#include <algorithm>
#include <map>

#include "base/error.h"

namespace quintet::layout {
namespace {

using Declared = std::map<std::string_view, StateRows>;  // by parameter

Declared by_param(const std::vector<graph::StateDecl>& states) {
  Declared declared;
  for (const graph::StateDecl& s : states)
    if (!s.param.empty())
      declared[s.param].push_back({.role = s.role,
                                   .keep = s.keep,
                                   .slot = s.slot,
                                   .dtype = s.type.dtype,
                                   .encoding = s.encoding,
                                   .stored = graph::stored_dtype(s),
                                   .block = s.block});
  for (auto& [param, rows] : declared)
    std::stable_sort(rows.begin(), rows.end(),
                     [](const StateRow& a, const StateRow& b) { return a.role < b.role; });
  return declared;
}

}  // namespace

std::vector<StateRows> state_table(const std::vector<graph::StateDecl>& states,
                                   const std::vector<Group>& groups) {
  const Declared declared = by_param(states);
  std::vector<StateRows> table;
  for (const Group& g : groups) {
    const StateRows& rows = declared.at(g.segments.front().name);
    for (const Segment& s : g.segments)
      QUINTET_CHECK(declared.at(s.name) == rows, "{} and {} of group {} have different states",
                    g.segments.front().name, s.name, g.name);
    table.push_back(rows);
  }
  return table;
}

StateRows rows_of(const std::vector<graph::StateDecl>& states, std::string_view param) {
  const Declared declared = by_param(states);
  const auto it = declared.find(param);
  return it == declared.end() ? StateRows() : it->second;
}

bool is_optimizer(graph::Role role) {
  return role == graph::Role::Master || role == graph::Role::Moment || role == graph::Role::Ema;
}

bool is_divided(graph::Role role, int zero) {
  switch (role) {
    case graph::Role::Weight:
      return zero >= 3;
    case graph::Role::Gradient:
      return zero >= 2;
    case graph::Role::Master:
    case graph::Role::Moment:
    case graph::Role::Ema:
      return zero >= 1;
    case graph::Role::RouterBias:
    case graph::Role::Scalar:
    case graph::Role::Amax:
      return false;
  }
  return false;
}

int64_t local_count(const StateRow& state, const GroupStorage& storage) {
  if (!is_divided(state.role, storage.zero)) return storage.elements;
  return storage.elements / storage.shards / (is_optimizer(state.role) ? storage.outer : 1);
}

int64_t local_bytes(const StateRow& state, const GroupStorage& storage) {
  return local_count(state, storage) / state.block * base::size_of(state.stored);
}

}  // namespace quintet::layout
