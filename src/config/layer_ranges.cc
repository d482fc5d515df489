#include "config/layer_ranges.h"

#include <fmt/format.h>

#include <charconv>

namespace quintet::config {
namespace {

constexpr int64_t kMostLayers = int64_t{1} << 20;

std::optional<int64_t> number(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || n < 0 || n > kMostLayers)
    return std::nullopt;
  return n;
}

}  // namespace

std::optional<std::vector<int64_t>> parse_layer_ranges(std::string_view text) {
  std::vector<int64_t> layers;
  for (bool more = true; more;) {
    const size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    more = comma != std::string_view::npos;
    if (more) text.remove_prefix(comma + 1);
    const size_t dash = part.find('-');
    const std::optional<int64_t> first = number(part.substr(0, dash));
    const std::optional<int64_t> last =
        dash == std::string_view::npos ? first : number(part.substr(dash + 1));
    if (!first || !last || *last < *first) return std::nullopt;
    for (int64_t n = *first; n <= *last; ++n) layers.push_back(n);
  }
  return layers;
}

std::string layer_ranges_text(const std::vector<int64_t>& layers) {
  std::string text;
  for (size_t i = 0; i < layers.size();) {
    size_t end = i;
    while (end + 1 < layers.size() && layers[end + 1] == layers[end] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", layers[i]);
    if (end > i) text += fmt::format("-{}", layers[end]);
    i = end + 1;
  }
  return text;
}

}  // namespace quintet::config
