#include "config/overrides.h"

#include <string_view>
#include <vector>

#include "config/codes.h"

namespace quintet::config {
namespace {

std::vector<std::string> split_at(std::string_view text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

std::string trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(" \t") - first + 1));
}

// Parses `text` as a TOML value, or as a plain string when it is not one.
toml::table override_value(const std::string& key, const std::string& text) {
  try {
    toml::table tree = toml::parse("value = " + text);
    // Text with line breaks could contain more keys; then it is not a single value.
    if (tree.size() == 1 && tree.contains("value")) return tree;
  } catch (const toml::parse_error&) {
    const size_t sign = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
    if (text.size() > 18 && text.find_first_not_of("0123456789", sign) == std::string::npos)
      fail_coded(kOverridesAreKeyValue, "--set {}: {} does not fit into 64 bits", key, text);
  }
  toml::table plain;
  plain.insert_or_assign("value", text);
  return plain;
}

}  // namespace

void apply_override(toml::table& tree, const std::string& text) {
  const size_t equals = text.find('=');
  const std::string key = trimmed(std::string_view(text).substr(0, equals));
  const std::vector<std::string> path = split_at(key, '.');
  bool named = equals != std::string::npos;
  for (const std::string& part : path) named = named && !part.empty();
  if (!named)
    fail_coded(kOverridesAreKeyValue, "--set {}: expected key=value, for example --set parallel.tp=2", text);

  constexpr size_t kMaxParts = 32;  // the deepest key has 4
  if (path.size() > kMaxParts)
    fail_coded(kOverridesAreKeyValue, "--set: a key has {} parts; a recipe has keys of at most {}",
               path.size(), kMaxParts);
  toml::table* table = &tree;
  for (size_t i = 0; i + 1 < path.size(); ++i) {
    if (!table->contains(path[i])) table->insert(path[i], toml::table{});
    toml::table* inner = table->get(path[i])->as_table();
    if (inner == nullptr)
      fail_coded(kOverridesAreKeyValue,
                 "--set {}: {} is a value in the recipe, not a section that can contain {}", text, path[i],
                 path[i + 1]);
    table = inner;
  }
  const toml::table value = override_value(key, text.substr(equals + 1));
  value.get("value")->visit([&](const auto& node) { table->insert_or_assign(path.back(), node); });
}

}  // namespace quintet::config
