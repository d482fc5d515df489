// Named parameters of a node (window, scale, ...). Each op lists the names and kinds that it takes; the
// verifier checks them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace quintet::graph {

using AttrValue = std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<double>>;

enum class AttrKind : uint8_t { Integer, Real, Text, Integers, Reals };  // in the order of AttrValue

struct AttrSpec {
  std::string_view name;
  AttrKind kind;
  bool optional = false;
  bool of_rank = false;  // in programs its value depends on the rank's coordinates in the mesh
};
// What flat instructions of the step have (program/flat_ranges.h): ranges of elements, clipped to the rank's
// part of a group, and, for each range, which elements of its parameter these are (kernels::Origin: key,
// first, run, stride, base).
inline constexpr AttrSpec kRanges = {"ranges", AttrKind::Integers, /*optional=*/false, /*of_rank=*/true};
inline constexpr AttrSpec kOrigins = {"origins", AttrKind::Integers, /*optional=*/true, /*of_rank=*/true};

class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<std::string, AttrValue>> list) : items_(list) {}

  const AttrValue* find(std::string_view name) const;
  int64_t integer(std::string_view name) const { return get<int64_t>(name); }
  double real(std::string_view name) const { return get<double>(name); }
  const std::string& text(std::string_view name) const { return get<std::string>(name); }
  const std::vector<int64_t>& integers(std::string_view name) const {
    return get<std::vector<int64_t>>(name);
  }
  const std::vector<double>& reals(std::string_view name) const { return get<std::vector<double>>(name); }
  void set(std::string_view name, AttrValue value);
  void erase(std::string_view name);
  const std::vector<std::pair<std::string, AttrValue>>& items() const { return items_; }
  friend bool operator==(const Attrs&, const Attrs&) = default;

 private:
  template <class T>
  const T& get(std::string_view name) const;
  std::vector<std::pair<std::string, AttrValue>> items_;
};

std::string quote(std::string_view text);   // in double quotes; quotes, backslashes and line ends are escaped
std::string to_string(const Attrs& attrs);  // {window=0, scale=0.125}; doubles read back bit-equal

}  // namespace quintet::graph
