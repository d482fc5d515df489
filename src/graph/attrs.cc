#include "graph/attrs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace quintet::graph {
namespace {

// A double always shows a point, an exponent or a word, so that a reader can tell it from an integer.
std::string real_text(double v) {
  std::string s = fmt::format("{}", v);
  return s.find_first_of(".einf") == std::string::npos ? s + ".0" : s;
}

std::string value_text(const AttrValue& v) {
  struct Printer {
    std::string operator()(int64_t i) const { return fmt::format("{}", i); }
    std::string operator()(double d) const { return real_text(d); }
    std::string operator()(const std::string& s) const { return quote(s); }
    std::string operator()(const std::vector<int64_t>& list) const {
      return fmt::format("[{}]", fmt::join(list, " "));
    }
    std::string operator()(const std::vector<double>& list) const {
      std::vector<std::string> parts;
      for (const double d : list) parts.push_back(real_text(d));
      return fmt::format("<{}>", fmt::join(parts, " "));
    }
  };
  return std::visit(Printer{}, v);
}

}  // namespace

const AttrValue* Attrs::find(std::string_view name) const {
  for (const auto& [key, value] : items_)
    if (key == name) return &value;
  return nullptr;
}

template <class T>
const T& Attrs::get(std::string_view name) const {
  const AttrValue* value = find(name);
  QUINTET_CHECK(value != nullptr, "no attribute {}", name);
  const T* typed = std::get_if<T>(value);
  QUINTET_CHECK(typed != nullptr, "attribute {} has another kind", name);
  return *typed;
}
template const int64_t& Attrs::get<int64_t>(std::string_view) const;
template const double& Attrs::get<double>(std::string_view) const;
template const std::string& Attrs::get<std::string>(std::string_view) const;
template const std::vector<int64_t>& Attrs::get<std::vector<int64_t>>(std::string_view) const;
template const std::vector<double>& Attrs::get<std::vector<double>>(std::string_view) const;

void Attrs::set(std::string_view name, AttrValue value) {
  for (auto& [key, old] : items_)
    if (key == name) {
      old = std::move(value);
      return;
    }
  items_.emplace_back(std::string(name), std::move(value));
}

void Attrs::erase(std::string_view name) {
  std::erase_if(items_, [&](const auto& item) { return item.first == name; });
}

std::string quote(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return quoted + "\"";
}

std::string to_string(const Attrs& attrs) {
  std::string text = "{";
  for (const auto& [key, value] : attrs.items())
    text += fmt::format("{}{}={}", text.size() > 1 ? ", " : "", key, value_text(value));
  return text + "}";
}

}  // namespace quintet::graph
