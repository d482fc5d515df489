#include "graph/input.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

namespace quintet::graph {
namespace {

constexpr std::array<std::string_view, 12> kNames = {"ids",     "labels",   "positions",   "documents",
                                                     "samples", "next_ids", "next_labels", "token_types",
                                                     "routes",  "seed",     "dropout_key", "one"};

}  // namespace

std::string to_string(const InputSpec& spec) {
  std::string name =
      spec.kind == InputKind::User ? spec.user_name : std::string(kNames[static_cast<size_t>(spec.kind)]);
  return spec.rows.ranks == 1 ? name : fmt::format("{}:{}", name, spec.rows.ranks);
}

InputSpec parse_input(std::string_view text) {
  InputSpec spec;
  std::string_view name = text;
  if (const size_t colon = text.rfind(':'); colon != std::string_view::npos) {
    const std::string_view digits = text.substr(colon + 1);
    int ranks = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), ranks);
    if (error == std::errc() && end == digits.data() + digits.size() && ranks > 1) {
      spec.rows.ranks = ranks;
      name = text.substr(0, colon);
    }
  }
  for (size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) {
      spec.kind = static_cast<InputKind>(i);
      return spec;
    }
  spec.user_name = name;
  return spec;
}

}  // namespace quintet::graph
