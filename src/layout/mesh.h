// The mesh: an ordered list of atoms, outermost first. A named axis (dp_shard, tp, ...) is a product of
// consecutive atoms; an axis is split into several atoms where a dim uses only a part of it (fewer KV heads
// than tp, resharding to k of the data ranks). Ranks are numbered with the last atom fastest, so inner axes
// have neighbouring ranks.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace quintet::layout {

using base::RankId;
using AtomList = std::vector<int>;  // indices of atoms, major to minor

enum class Axis : uint8_t { Pp, DpReplicate, DpShard, Cp, Tp };  // outermost first by default
std::string_view to_string(Axis axis);                           // "dp_shard"
std::optional<Axis> parse_axis(std::string_view name);
// A whole axis, or one of the atoms that it is split into: "tp", "dp_shard[1]".
struct AxisPart {
  static constexpr int kWhole = -1;
  Axis axis;
  int part = kWhole;
  auto operator<=>(const AxisPart&) const = default;
};
std::string to_string(const std::vector<AxisPart>& parts);  // "dp_shard[1]+tp", "none"
std::optional<std::vector<AxisPart>> parse_axis_parts(std::string_view text);
inline bool is_data(Axis axis) { return axis == Axis::DpReplicate || axis == Axis::DpShard; }

struct Atom {
  Axis axis;
  int size;
};

class Mesh {
 public:
  explicit Mesh(std::vector<Atom> atoms);

  int num_atoms() const { return static_cast<int>(atoms_.size()); }
  int world() const { return world_; }
  const Atom& atom(int index) const { return atoms_[static_cast<size_t>(index)]; }
  AtomList axis(Axis axis) const;  // its atoms of size > 1, major to minor; empty when the axis is trivial
  std::vector<AxisPart> parts(const AtomList& atoms) const;  // in their order

  int size(const AtomList& atoms) const;
  int coordinate(RankId rank, int atom) const;
  // Position of a rank in the group that the atoms span, counting with the last atom fastest.
  int index(RankId rank, const AtomList& atoms) const;
  bool is_first(RankId rank, const AtomList& atoms) const { return index(rank, atoms) == 0; }
  // The ranks that differ from `rank` in these atoms only, ordered by index().
  std::vector<RankId> group(RankId rank, const AtomList& atoms) const;
  std::string name(const AtomList& atoms) const { return to_string(parts(atoms)); }

 private:
  std::vector<Atom> atoms_;
  std::vector<int> strides_;
  int world_ = 1;
};

// Set operations that keep the order of the first operand.
bool contains(const AtomList& list, int atom);
AtomList without(const AtomList& a, const AtomList& b);
AtomList intersection(const AtomList& a, const AtomList& b);
AtomList set_union(const AtomList& a, const AtomList& b);  // sorted, major (outermost) first
AtomList concat(const AtomList& a, const AtomList& b);

}  // namespace quintet::layout
