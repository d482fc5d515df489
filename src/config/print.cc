#include "config/print.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <type_traits>

#include "config/axis_order.h"
#include "config/byte_size.h"
#include "config/layer_ranges.h"
#include "config/length.h"
#include "config/names.h"
#include "config/schema.h"
#include "config/toml_text.h"

namespace quintet::config {
namespace {

// ---- TOML

std::string toml_value(const std::string& v) { return toml_text(v); }
std::string toml_value(bool v) { return v ? "true" : "false"; }
std::string toml_value(int64_t v) { return fmt::format("{}", v); }
std::string toml_value(base::Bytes v) {
  const std::string text = byte_size_text(v.value);
  return text == fmt::format("{}", v.value) ? text : toml_text(text);
}
// The shortest decimal that reads back to the same bits, marked as a float.
std::string toml_value(double v) {
  std::string text = fmt::format("{}", v);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}
std::string toml_value(const std::array<double, 2>& v) {
  return fmt::format("[{}, {}]", toml_value(v[0]), toml_value(v[1]));
}
std::string toml_value(const std::vector<int64_t>& v) { return fmt::format("[{}]", fmt::join(v, ", ")); }
std::string toml_value(const std::vector<double>& v) {
  std::string out = "[";
  for (const double item : v) out += (out.size() > 1 ? ", " : "") + toml_value(item);
  return out + "]";
}
std::string toml_value(const std::vector<std::string>& v) {
  std::string out = "[";
  for (const std::string& item : v) out += (out.size() > 1 ? ", " : "") + toml_text(item);
  return out + "]";
}
std::string toml_value(const DimAxes& v) {
  std::string out = "{";
  for (const auto& [dim, axis] : v)
    out += fmt::format("{} {} = {}", out.size() > 1 ? "," : "", dim, toml_text(name_of(axis)));
  return out + (v.empty() ? "}" : " }");
}
std::string toml_value(const AxisOrder& v) { return fmt::format("[{}]", axis_order_text(v)); }
std::string toml_value(const std::vector<RecomputeLayers>& v) {
  std::string out = "[";
  for (const RecomputeLayers& l : v)
    out += fmt::format("{}{{ layers = {}, ops = {} }}", out.size() > 1 ? ", " : "",
                       toml_text(layer_ranges_text(l.layers)), toml_value(l.ops));
  return out + "]";
}
std::string toml_value(const ReshardAfterForward& v) {
  if (v.kind == ReshardAfterForward::Kind::ToRanks) return toml_value(v.ranks);
  return toml_value(v.kind == ReshardAfterForward::Kind::Yes);
}
std::string toml_value(const Grouping& v) {
  if (v.kind == Grouping::Kind::Blocks) return toml_value(v.size);
  return toml_text(v.kind == Grouping::Kind::Auto ? "auto" : byte_size_text(v.size));
}
std::string toml_value(const LossScale& v) { return v.dynamic ? toml_text("dynamic") : toml_value(v.value); }
std::string toml_value(const Length& v) {
  if (v.unit == Length::Unit::Fraction) return toml_value(v.value);
  if (v.unit == Length::Unit::Steps) return toml_value(static_cast<int64_t>(v.value));
  return toml_text(length_text(v));
}
std::string toml_value(const SaveInterval& v) {
  return v.unit == SaveInterval::Unit::Steps ? toml_value(v.value) : toml_text(interval_text(v));
}
std::string toml_value(const std::vector<BatchStage>& v) {
  std::string out = "[";
  for (const BatchStage& s : v)
    out += fmt::format("{}{{ until = {}, global = {} }}", out.size() > 1 ? ", " : "", toml_value(s.until),
                       s.global);
  return out + "]";
}
std::string toml_value(const std::vector<BlendSet>& v) {
  std::string out = "[";
  for (const BlendSet& s : v) {
    out += fmt::format("{}{{ name = {}, path = {}", out.size() > 1 ? ", " : "", toml_text(s.name),
                       toml_value(s.path));
    if (s.weight > 0) out += fmt::format(", weight = {}", toml_value(s.weight));
    if (s.tokens > 0) out += fmt::format(", tokens = {}", s.tokens);
    if (!s.repeat) out += ", repeat = false";
    out += " }";
  }
  return out + "]";
}
std::string toml_value(const std::vector<EvalSet>& v) {
  std::string out = "[";
  for (const EvalSet& s : v)
    out += fmt::format("{}{{ name = {}, path = {} }}", out.size() > 1 ? ", " : "", toml_text(s.name),
                       toml_value(s.path));
  return out + "]";
}
template <class E>
requires std::is_enum_v<E> std::string toml_value(E v) { return toml_text(name_of(v)); }
std::string toml_value(const std::vector<ParamGroup>& v) {
  std::string out = "[";
  for (const ParamGroup& g : v) {
    out += fmt::format("{}{{ match = {}", out.size() > 1 ? ", " : "", toml_text(g.match));
    if (g.kind) out += fmt::format(", name = {}", toml_value(*g.kind));
    if (g.lr) out += fmt::format(", lr = {}", toml_value(*g.lr));
    if (g.weight_decay) out += fmt::format(", weight_decay = {}", toml_value(*g.weight_decay));
    if (!g.update) out += ", update = false";
    out += " }";
  }
  return out + "]";
}

// ---- JSON

using Json = nlohmann::ordered_json;

template <class T>
Json json_value(const T& v) {
  if constexpr (std::is_enum_v<T>)
    return std::string(name_of(v));
  else
    return v;
}
Json json_value(base::Bytes v) { return v.value; }
Json json_value(const DimAxes& v) {
  Json axes = Json::object();
  for (const auto& [dim, axis] : v) axes[dim] = std::string(name_of(axis));
  return axes;
}
Json json_value(const AxisOrder& v) {
  Json list = Json::array();
  for (const MeshAxis axis : v) list.push_back(std::string(name_of(axis)));
  return list;
}
Json json_value(const std::vector<RecomputeLayers>& v) {
  Json list = Json::array();
  for (const RecomputeLayers& l : v) list.push_back({{"layers", l.layers}, {"ops", l.ops}});
  return list;
}
Json json_value(const ReshardAfterForward& v) {
  if (v.kind == ReshardAfterForward::Kind::ToRanks) return v.ranks;
  return v.kind == ReshardAfterForward::Kind::Yes;
}
Json json_value(const Grouping& v) {
  if (v.kind == Grouping::Kind::Blocks) return v.size;
  return v.kind == Grouping::Kind::Auto ? std::string("auto") : byte_size_text(v.size);
}
Json json_value(const Length& v) {
  if (v.unit == Length::Unit::Fraction) return v.value;
  if (v.unit == Length::Unit::Steps) return static_cast<int64_t>(v.value);
  return length_text(v);
}
Json json_value(const SaveInterval& v) {
  if (v.unit == SaveInterval::Unit::Steps) return v.value;
  return interval_text(v);
}
Json json_value(const std::vector<BatchStage>& v) {
  Json stages = Json::array();
  for (const BatchStage& s : v) stages.push_back({{"until", json_value(s.until)}, {"global", s.global}});
  return stages;
}
Json json_value(const std::vector<BlendSet>& v) {
  Json list = Json::array();
  for (const BlendSet& s : v) {
    Json set = {{"name", s.name}, {"path", s.path}};
    if (s.weight > 0) set["weight"] = s.weight;
    if (s.tokens > 0) set["tokens"] = s.tokens;
    set["repeat"] = s.repeat;
    list.push_back(std::move(set));
  }
  return list;
}
Json json_value(const std::vector<EvalSet>& v) {
  Json list = Json::array();
  for (const EvalSet& s : v) list.push_back({{"name", s.name}, {"path", s.path}});
  return list;
}
Json json_value(const std::vector<ParamGroup>& v) {
  Json list = Json::array();
  for (const ParamGroup& g : v) {
    Json group = {{"match", g.match}};
    if (g.kind) group["name"] = std::string(name_of(*g.kind));
    if (g.lr) group["lr"] = *g.lr;
    if (g.weight_decay) group["weight_decay"] = *g.weight_decay;
    if (!g.update) group["update"] = false;
    list.push_back(std::move(group));
  }
  return list;
}
Json json_value(const LossScale& v) {
  if (v.dynamic) return "dynamic";
  return v.value;
}

// "a.b.c" -> {"a.b", "c"}
std::pair<std::string, std::string> section_and_name(std::string_view key) {
  const size_t dot = key.rfind('.');
  if (dot == std::string_view::npos) return {"", std::string(key)};
  return {std::string(key.substr(0, dot)), std::string(key.substr(dot + 1))};
}

}  // namespace

std::string to_toml(const Recipe& recipe) {
  std::string out, open;
  for_each_key(recipe, [&](const char* key, const auto& value, const auto&...) {
    const auto [section, name] = section_and_name(key);
    if (section != open) {
      out += fmt::format("\n[{}]\n", section);
      open = section;
    }
    out += fmt::format("{} = {}\n", name, toml_value(value));
  });
  return out;
}

std::vector<KeyText> key_texts(const Recipe& recipe) {
  std::vector<KeyText> texts;
  for_each_key(recipe, [&](const char* key, const auto& value, const auto&...) {
    texts.push_back({key, toml_value(value)});
  });
  return texts;
}

std::string to_json(const Recipe& recipe, int indent) {
  Json root = Json::object();
  for_each_key(recipe, [&](const char* key, const auto& value, const auto&...) {
    std::string pointer = "/";
    for (const char* c = key; *c != '\0'; ++c) pointer += *c == '.' ? '/' : *c;
    root[Json::json_pointer(pointer)] = json_value(value);
  });
  return root.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace quintet::config
