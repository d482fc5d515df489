#include "layout/mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace quintet::layout {

std::string_view to_string(Axis axis) {
  switch (axis) {
    case Axis::Pp:
      return "pp";
    case Axis::DpReplicate:
      return "dp_replicate";
    case Axis::DpShard:
      return "dp_shard";
    case Axis::Cp:
      return "cp";
    case Axis::Tp:
      return "tp";
  }
  base::fail_internal("no such axis");
}

std::optional<Axis> parse_axis(std::string_view name) {
  for (const Axis axis : {Axis::Pp, Axis::DpReplicate, Axis::DpShard, Axis::Cp, Axis::Tp})
    if (to_string(axis) == name) return axis;
  return std::nullopt;
}

std::string to_string(const std::vector<AxisPart>& parts) {
  std::string text;
  for (const AxisPart& p : parts) {
    text.append(text.empty() ? "" : "+").append(to_string(p.axis));
    if (p.part != AxisPart::kWhole) text += fmt::format("[{}]", p.part);
  }
  return text.empty() ? "none" : text;
}

std::optional<std::vector<AxisPart>> parse_axis_parts(std::string_view text) {
  std::vector<AxisPart> parts;
  while (true) {
    const size_t end = std::min(text.find('+'), text.size());
    const std::string_view word = text.substr(0, end), name = word.substr(0, word.find('['));
    const std::optional<Axis> axis = parse_axis(name);
    if (!axis) return std::nullopt;
    parts.push_back({*axis});
    if (name.size() < word.size()) {
      const char* const last = word.data() + word.size() - 1;
      const auto [stop, error] = std::from_chars(word.data() + name.size() + 1, last, parts.back().part);
      if (error != std::errc() || stop != last || *last != ']' || parts.back().part < 0) return std::nullopt;
    }
    if (end == text.size()) return parts;
    text.remove_prefix(end + 1);
  }
}

Mesh::Mesh(std::vector<Atom> atoms) : atoms_(std::move(atoms)), strides_(atoms_.size()) {
  for (size_t i = atoms_.size(); i-- > 0;) {
    QUINTET_CHECK(atoms_[i].size >= 1, "atom of axis {} has size {}", to_string(atoms_[i].axis),
                  atoms_[i].size);
    strides_[i] = world_;
    world_ *= atoms_[i].size;
  }
}

AtomList Mesh::axis(Axis wanted) const {
  AtomList list;
  for (int i = 0; i < num_atoms(); ++i)
    if (atom(i).axis == wanted && atom(i).size > 1) list.push_back(i);
  return list;
}

int Mesh::size(const AtomList& atoms) const {
  int n = 1;
  for (const int a : atoms) n *= atom(a).size;
  return n;
}

int Mesh::coordinate(RankId rank, int a) const {
  return rank.value / strides_[static_cast<size_t>(a)] % atom(a).size;
}

int Mesh::index(RankId rank, const AtomList& atoms) const {
  int i = 0;
  for (const int a : atoms) i = i * atom(a).size + coordinate(rank, a);
  return i;
}

std::vector<RankId> Mesh::group(RankId rank, const AtomList& atoms) const {
  int base = rank.value;
  for (const int a : atoms) base -= coordinate(rank, a) * strides_[static_cast<size_t>(a)];
  std::vector<RankId> members;
  const int n = size(atoms);
  for (int i = 0; i < n; ++i) {
    int r = base, rest = i;
    for (size_t k = atoms.size(); k-- > 0;) {
      r += rest % atom(atoms[k]).size * strides_[static_cast<size_t>(atoms[k])];
      rest /= atom(atoms[k]).size;
    }
    members.push_back(RankId(r));
  }
  return members;
}

std::vector<AxisPart> Mesh::parts(const AtomList& atoms) const {
  std::vector<AxisPart> parts;
  for (const int a : atoms) {
    const AtomList whole = axis(atom(a).axis);
    if (!std::all_of(whole.begin(), whole.end(), [&](int w) { return contains(atoms, w); }))
      parts.push_back(
          {atom(a).axis, static_cast<int>(std::find(whole.begin(), whole.end(), a) - whole.begin())});
    else if (whole.empty() || whole.front() == a)
      parts.push_back({atom(a).axis});
  }
  return parts;
}

bool contains(const AtomList& list, int atom) {
  return std::find(list.begin(), list.end(), atom) != list.end();
}

AtomList without(const AtomList& a, const AtomList& b) {
  AtomList out;
  std::copy_if(a.begin(), a.end(), std::back_inserter(out), [&](int x) { return !contains(b, x); });
  return out;
}

AtomList intersection(const AtomList& a, const AtomList& b) {
  AtomList out;
  std::copy_if(a.begin(), a.end(), std::back_inserter(out), [&](int x) { return contains(b, x); });
  return out;
}

AtomList set_union(const AtomList& a, const AtomList& b) {
  AtomList out = concat(a, without(b, a));
  std::sort(out.begin(), out.end());
  return out;
}

AtomList concat(const AtomList& a, const AtomList& b) {
  AtomList out = a;
  out.insert(out.end(), b.begin(), b.end());
  return out;
}

}  // namespace quintet::layout
