#include "machine/measured_rates.h"

#include <fmt/format.h>

#include <iterator>

namespace quintet::machine {

hardware::Link measured_link(std::string name, std::string title, hardware::LinkKind kind, double bytes_per_s,
                             double latency_s, const std::string& date) {
  hardware::Link link;
  link.name = std::move(name);
  link.title = std::move(title);
  link.kind = kind;
  link.bytes_per_s = bytes_per_s;
  link.latency_s = latency_s;
  link.efficiency = 1;
  link.source = "quintet doctor --probe";
  link.date = date;
  return link;
}

std::string with_prefix(double value, std::string_view unit, int digits) {
  constexpr std::string_view prefixes[] = {"", "k", "M", "G", "T", "P"};
  size_t i = 0;
  for (; value >= 1000 && i + 1 < std::size(prefixes); ++i) value /= 1000;
  return fmt::format("{:.{}g} {}{}", value, digits, prefixes[i], unit);
}

}  // namespace quintet::machine
