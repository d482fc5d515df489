#include "config/leaves.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "base/wrap.h"

namespace quintet::config {
namespace {
constexpr size_t kShownColumns = 200;
}

std::string text_of(const toml::node& node) {
  std::ostringstream out;
  node.visit([&](const auto& n) {
    if constexpr (toml::is_table<decltype(n)>)
      out << "a table";
    else if constexpr (toml::is_array<decltype(n)>) {
      constexpr size_t kShown = 8;
      out << '[';
      for (size_t i = 0; i < std::min(n.size(), kShown); ++i) out << (i == 0 ? "" : ", ") << text_of(n[i]);
      out << (n.size() > kShown ? ", ...]" : "]");
    } else if constexpr (toml::is_floating_point<decltype(n)>) {
      const std::string number = fmt::format("{}", n.get());
      const bool looks_whole = number.find_first_not_of("-0123456789") == std::string::npos;
      out << number << (looks_whole ? ".0" : "");  // a number that is not an integer must not look like one
    } else if constexpr (toml::is_string<decltype(n)>)
      out << '"' << base::shortened(n.get(), kShownColumns) << '"';
    else
      out << n;
  });
  return out.str();
}

std::string given_text(const Leaves& leaves, const char* key) {
  const auto leaf = leaves.find(key);
  return leaf == leaves.end() ? "" : leaf->second->value_exact<std::string>().value_or("");
}

}  // namespace quintet::config
