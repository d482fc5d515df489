#include "config/key_reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <type_traits>

#include "base/text.h"
#include "config/accepted.h"
#include "config/axis_order.h"
#include "config/byte_size.h"
#include "config/layer_ranges.h"
#include "config/length.h"
#include "config/names.h"
#include "config/nearest.h"
#include "config/schema.h"
#include "config/stage_layout.h"
#include "config/unsupported.h"

namespace quintet::config {
namespace {

class Reader {
 public:
  Reader(const Leaves& leaves, Report& report) : leaves_(leaves), report_(report) {}

  template <class T, class... L>
  void operator()(const char* key, T& field, const L&...) {
    const auto leaf = leaves_.find(key);
    if (leaf != leaves_.end()) read(key, *leaf->second, field);
  }

 private:
  void wrong(const char* key, const toml::node& node, const std::string& expected,
             const std::string& nearest = {}) {
    report_.add("values have the type of their key", key,
                fmt::format("must be {}, got {}", expected, text_of(node)), nearest);
  }

  void read(const char* key, const toml::node& node, std::string& field) {
    if (const auto v = node.value_exact<std::string>())
      field = *v;
    else
      wrong(key, node, "a string");
  }
  void read(const char* key, const toml::node& node, bool& field) {
    if (const auto v = node.value_exact<bool>())
      field = *v;
    else
      wrong(key, node, "true or false");
  }
  void read(const char* key, const toml::node& node, int64_t& field) {
    if (const auto v = node.value_exact<int64_t>())
      field = *v;
    else
      wrong(key, node, "an integer", nearest_integer(key, node));
  }
  // "3" for parallel.zero = "full_shard", "1000" for run.steps = 1e3.
  static std::string nearest_integer(const char* key, const toml::node& node) {
    const std::string_view ours = word_elsewhere(key, node.value<std::string>().value_or(""));
    return ours.empty() ? whole_number(node) : std::string(ours);
  }
  // "1000000" for 1e6, which TOML takes for a float; empty for anything that is not whole.
  static std::string whole_number(const toml::node& node) {
    const auto v = node.value_exact<double>();
    const bool whole = v && *v == std::floor(*v) && std::abs(*v) < 0x1p53;
    return whole ? fmt::format("{:.0f}", *v) : std::string();
  }
  void read(const char* key, const toml::node& node, base::Bytes& field) {
    std::optional<int64_t> bytes = node.value_exact<int64_t>();
    if (const auto text = node.value_exact<std::string>()) bytes = parse_byte_size(*text);
    if (bytes && *bytes >= 0)
      field = base::Bytes(*bytes);
    else
      wrong(key, node, "a number of bytes or a size like \"6GiB\" or \"512 MB\"");
  }
  void read(const char* key, const toml::node& node, double& field) {
    if (const auto v = number(node))
      field = *v;
    else
      wrong(key, node, "a number");
  }
  void read(const char* key, const toml::node& node, std::array<double, 2>& field) {
    const toml::array* array = node.as_array();
    if (array == nullptr || array->size() != 2 || !number((*array)[0]) || !number((*array)[1]))
      return wrong(key, node, "an array of two numbers", "[0.9, 0.95]");
    field = {*number((*array)[0]), *number((*array)[1])};
  }
  void read(const char* key, const toml::node& node, std::vector<int64_t>& field) {
    const bool stages = std::string_view(key) == "parallel.stages";
    if (const auto text = node.value_exact<std::string>(); text && stages) {
      StageLayout layout = parse_stage_layout(*text);
      if (!layout.error.empty())
        return report_.add("values have the type of their key", key,
                           fmt::format("\"{}\" {}", *text, layout.error),
                           "blocks per virtual stage, as [7, 9, 9, 7]");
      field = std::move(layout.stages);
      return;
    }
    const toml::array* array = node.as_array();
    if (array == nullptr)
      return wrong(key, node,
                   stages ? "a list of integers or a layout as \"Ettt|tttt|ttttL\"" : "a list of integers");
    std::vector<int64_t> values;
    for (const toml::node& item : *array) {
      const auto v = item.value_exact<int64_t>();
      if (!v) return wrong(key, item, "a list of integers");
      values.push_back(*v);
    }
    field = std::move(values);
  }
  void read(const char* key, const toml::node& node, std::vector<double>& field) {
    const toml::array* array = node.as_array();
    if (array == nullptr) return wrong(key, node, "a list of numbers");
    std::vector<double> values;
    for (const toml::node& item : *array) {
      const auto v = number(item);
      if (!v) return wrong(key, item, "a list of numbers");
      values.push_back(*v);
    }
    field = std::move(values);
  }
  // A single string is a list of one.
  void read(const char* key, const toml::node& node, std::vector<std::string>& field) {
    const toml::array* array = node.as_array();
    std::vector<std::string> values;
    if (const auto v = node.value_exact<std::string>()) {
      values.push_back(*v);
    } else if (array != nullptr) {
      for (const toml::node& item : *array) {
        const auto text = item.value_exact<std::string>();
        if (!text) return wrong(key, item, "a list of strings");
        values.push_back(*text);
      }
    } else {
      return wrong(key, node, "a string or a list of strings");
    }
    field = std::move(values);
  }
  void read(const char* key, const toml::node& node, ReshardAfterForward& field) {
    using Kind = ReshardAfterForward::Kind;
    if (const auto on = node.value_exact<bool>())
      field = {*on ? Kind::Yes : Kind::No, 0};
    else if (const auto ranks = node.value_exact<int64_t>())
      field = {Kind::ToRanks, *ranks};
    else
      wrong(key, node, "true, false or a number of ranks");
  }
  void read(const char* key, const toml::node& node, Grouping& field) {
    using Kind = Grouping::Kind;
    const auto blocks = node.value_exact<int64_t>();
    const auto text = node.value_exact<std::string>();
    const auto bytes = text ? parse_byte_size(*text) : std::nullopt;
    if (blocks && *blocks >= 1)
      field = {Kind::Blocks, *blocks};
    else if (text && *text == "auto")
      field = {};
    else if (bytes && *bytes >= 1)
      field = {Kind::Bytes, *bytes};
    else
      wrong(key, node, "a number of blocks, a size like \"64MiB\", or \"auto\"", "1");
  }
  void read(const char* key, const toml::node& node, DimAxes& field) {
    const toml::table* table = node.as_table();
    if (table == nullptr) return wrong(key, node, "a table of dims and axes", "{ channels = \"tp\" }");
    for (const auto& [name, axis] : *table) {
      DimAxis value{};
      read(key, axis, value);
      field[std::string(name.str())] = value;
    }
  }
  void read(const char* key, const toml::node& node, AxisOrder& field) {
    constexpr const char* kExample = "[\"tp\", \"cp\", \"dp_shard\", \"dp_replicate\", \"pp\"]";
    const auto refuse = [&](std::string_view word) {
      report_.add(
          "values have the type of their key", key,
          fmt::format("\"{}\" is not an axis; the axes are tp, cp, dp_shard, dp_replicate, pp and, for "
                      "the place of the experts' ranks, ep",
                      word),
          kExample);
    };
    std::string unknown;
    if (const auto text = node.value_exact<std::string>()) {
      const std::optional<AxisOrder> order = parse_axis_order(base::lower_case(*text), unknown);
      return order ? void(field = *order) : refuse(unknown);
    }
    const toml::array* array = node.as_array();
    if (array == nullptr)
      return wrong(key, node, "a list of axes, innermost first, or Megatron's \"tp-cp-ep-dp-pp\"", kExample);
    AxisOrder order;
    for (const toml::node& item : *array) {
      const auto word = item.value_exact<std::string>();
      if (!word) return wrong(key, item, "a list of axes", kExample);
      const std::optional<AxisOrder> axes = parse_axis_order(*word, unknown);
      if (!axes || word->find('-') != std::string::npos) return refuse(*word);
      order.insert(order.end(), axes->begin(), axes->end());
    }
    field = std::move(order);
  }
  void read(const char* key, const toml::node& node, std::vector<RecomputeLayers>& field) {
    read_tables(
        key, node, field, "[{ layers = \"0-3\", ops = [\"attention\"] }]", {"layers", "ops"},
        [&](const char* where, std::string_view name, const toml::node& value, RecomputeLayers& item) {
          if (name == "layers")
            read_layers(where, value, item.layers);
          else if (name == "ops")
            read(where, value, item.ops);
          else
            return false;
          return true;
        });
  }
  void read_layers(const char* where, const toml::node& node, std::vector<int64_t>& field) {
    std::optional<std::vector<int64_t>> layers;
    if (const auto text = node.value_exact<std::string>()) layers = parse_layer_ranges(*text);
    if (const auto one = node.value_exact<int64_t>()) layers = {*one};
    if (const toml::array* array = node.as_array()) {
      layers.emplace();
      for (const toml::node& item : *array) {
        const auto n = item.value_exact<int64_t>();
        const auto text = item.value_exact<std::string>();
        const auto more = n      ? std::vector<int64_t>{*n}
                          : text ? parse_layer_ranges(*text)
                                 : std::optional<std::vector<int64_t>>();
        if (!more) return wrong(where, item, "blocks counted from 0, or a range of them", "\"4-7\"");
        layers->insert(layers->end(), more->begin(), more->end());
      }
    }
    if (!layers) return wrong(where, node, "blocks counted from 0, such as [0, 2] or \"0-3, 8\"", "\"0-3\"");
    std::sort(layers->begin(), layers->end());
    layers->erase(std::unique(layers->begin(), layers->end()), layers->end());
    field = std::move(*layers);
  }
  static std::optional<Length> length(const toml::node& node) {
    if (const auto steps = node.value_exact<int64_t>(); steps && *steps >= 0)
      return Length{Length::Unit::Steps, static_cast<double>(*steps)};
    if (const auto share = node.value_exact<double>(); share && *share >= 0 && *share <= 1)
      return Length{Length::Unit::Fraction, *share};
    if (const auto text = node.value_exact<std::string>()) return parse_length(*text);
    return std::nullopt;
  }
  void read(const char* key, const toml::node& node, Length& field) {
    if (const auto v = length(node))
      field = *v;
    else
      wrong(key, node, kLengthWords,
            number(node) > 1.0 && !whole_number(node).empty() ? whole_number(node) : "\"2B tokens\"");
  }
  void read(const char* key, const toml::node& node, SaveInterval& field) {
    std::optional<SaveInterval> interval;
    if (const auto steps = node.value_exact<int64_t>(); steps && *steps >= 0 && *steps <= int64_t{1} << 30)
      interval = SaveInterval{SaveInterval::Unit::Steps, *steps};
    if (const auto text = node.value_exact<std::string>()) interval = parse_interval(*text);
    if (interval)
      field = *interval;
    else
      wrong(key, node, kIntervalWords, nearest_interval(node.value<std::string>().value_or(text_of(node))));
  }
  void read(const char* key, const toml::node& node, std::vector<BatchStage>& field) {
    const auto refuse = [&](const std::string& why) {
      report_.add("values have the type of their key", key, "must be a list of {until, global}; " + why,
                  "[{until = \"1B tokens\", global = 256}]");
    };
    const toml::array* array = node.as_array();
    if (array == nullptr) return refuse("got " + text_of(node));
    std::vector<BatchStage> stages;
    for (const toml::node& item : *array) {
      const toml::table* table = item.as_table();
      if (table == nullptr) return refuse("one entry is " + text_of(item));
      BatchStage stage;
      for (const auto& [name, value] : *table) {
        if (name.str() == "until") {
          const auto v = length(value);
          if (!v) return refuse(fmt::format("until must be {}, got {}", kLengthWords, text_of(value)));
          stage.until = *v;
        } else if (name.str() == "global") {
          const auto v = value.value_exact<int64_t>();
          if (!v) return refuse("global must be an integer, got " + text_of(value));
          stage.global = *v;
        } else {
          return refuse(fmt::format("an entry has no key \"{}\"", std::string(name.str())));
        }
      }
      if (!table->contains("until") || !table->contains("global"))
        return refuse(fmt::format("entry {} has no {}", stages.size() + 1,
                                  table->contains("until") ? "global" : "until"));
      stages.push_back(stage);
    }
    field = std::move(stages);
  }
  // A list of tables; `one(where, name, value, item)` sets a key of an entry and returns whether it is one.
  template <class T, class One>
  void read_tables(const char* key, const toml::node& node, std::vector<T>& field, const char* example,
                   const std::vector<std::string>& names, const One& one) {
    const toml::array* array = node.as_array();
    if (array == nullptr) return wrong(key, node, "a list of tables", example);
    std::vector<T> items;
    const size_t before = report_.problems().size();
    for (const toml::node& entry : *array) {
      const toml::table* table = entry.as_table();
      if (table == nullptr) return wrong(key, entry, "a list of tables", example);
      T item;
      for (const auto& [name, value] : *table) {
        const std::string where = fmt::format("{}.{}", key, name.str());
        if (!one(where.c_str(), name.str(), value, item))
          report_.add("every key is known", where, fmt::format("is not a key of an entry of {}", key),
                      base::nearest_word(std::string(name.str()), names)
                          .value_or(fmt::format("{}", fmt::join(names, ", "))));
      }
      items.push_back(std::move(item));
    }
    if (report_.problems().size() > before) report_.spoil(key);  // an incomplete entry is reported once
    field = std::move(items);
  }
  void read(const char* key, const toml::node& node, std::vector<BlendSet>& field) {
    read_tables(key, node, field, "[{ path = \"web\", weight = 0.7 }, { path = \"code\", weight = 0.3 }]",
                {"name", "path", "weight", "tokens", "repeat"},
                [&](const char* where, std::string_view name, const toml::node& value, BlendSet& item) {
                  if (name == "name")
                    read(where, value, item.name);
                  else if (name == "path")
                    read(where, value, item.path);
                  else if (name == "weight")
                    read_weight(where, value, item.weight);
                  else if (name == "tokens")
                    read_tokens(where, value, item.tokens);
                  else if (name == "repeat")
                    read(where, value, item.repeat);
                  else
                    return false;
                  return true;
                });
  }
  void read(const char* key, const toml::node& node, std::vector<EvalSet>& field) {
    read_tables(key, node, field, "[{ name = \"code\", path = \"code-test\" }]", {"name", "path"},
                [&](const char* where, std::string_view name, const toml::node& value, EvalSet& item) {
                  if (name == "name")
                    read(where, value, item.name);
                  else if (name == "path")
                    read(where, value, item.path);
                  else
                    return false;
                  return true;
                });
  }
  // Checked here, because 0 stands for a key that is not given.
  void read_weight(const char* where, const toml::node& node, double& field) {
    const auto v = number(node);
    if (v && std::isfinite(*v) && *v > 0)
      field = *v;
    else
      wrong(where, node, "a number above 0; leave out a set that gets nothing");
  }
  void read_tokens(const char* where, const toml::node& node, int64_t& field) {
    std::optional<double> v = number(node);
    if (const auto text = node.value_exact<std::string>())
      if (const auto length = parse_length(*text); length && length->unit == Length::Unit::Tokens)
        v = length->value;
    if (v && *v >= 1 && *v <= 0x1p53 && std::floor(*v) == *v)
      field = static_cast<int64_t>(*v);
    else
      wrong(where, node, "a number of tokens above 0, such as 2000000000 or \"2B tokens\"");
  }
  void read(const char* key, const toml::node& node, std::vector<ParamGroup>& field) {
    const toml::array* array = node.as_array();
    if (array == nullptr) return wrong(key, node, "a list of tables", "[{ match = \"embed.*\", lr = 1e-4 }]");
    std::vector<ParamGroup> groups;
    for (const toml::node& item : *array) {
      const toml::table* table = item.as_table();
      if (table == nullptr)
        return wrong(key, item, "a list of tables",
                     fmt::format("[{{ match = {}, update = false }}]", text_of(item)));
      groups.push_back(read_group(key, *table));
    }
    field = std::move(groups);
  }
  ParamGroup read_group(const char* key, const toml::table& table) {
    ParamGroup group;
    const auto set = [&]<class T>(const std::string& where, const toml::node& node, std::optional<T>& value) {
      value.emplace();
      read(where.c_str(), node, *value);
    };
    for (const auto& [name, node] : table) {
      const std::string where = fmt::format("{}.{}", key, name.str());
      if (name == "match")
        read(where.c_str(), node, group.match);
      else if (name == "name")
        set(where, node, group.kind);
      else if (name == "lr")
        set(where, node, group.lr);
      else if (name == "weight_decay")
        set(where, node, group.weight_decay);
      else if (name == "update")
        read(where.c_str(), node, group.update);
      else
        report_.add("every key is known", where, "is not a key of a parameter group",
                    base::nearest_word(std::string(name.str()), kGroupKeys)
                        .value_or(fmt::format("{}", fmt::join(kGroupKeys, ", "))));
    }
    return group;
  }
  void read(const char* key, const toml::node& node, LossScale& field) {
    const auto text = node.value_exact<std::string>();
    if (const auto scale = number(node); scale && *scale > 0 && std::isfinite(*scale))
      field = {false, *scale};
    else if (text && *text == "dynamic")
      field = {.dynamic = true};
    else
      wrong(key, node, "\"dynamic\" or a number above 0", "\"dynamic\"");
  }
  template <class E>
  requires std::is_enum_v<E>
  void read(const char* key, const toml::node& node, E& field) {
    std::vector<std::string> names;
    for (const auto& [v, name] : Names<E>::kTable)
      if (is_accepted(key, v)) names.emplace_back(name);
    const std::string list =
        fmt::format("{}\"{}\"", names.size() == 1 ? "" : "one of ", fmt::join(names, "\", \""));
    auto text = node.value_exact<std::string>();
    if (number(node) == std::numeric_limits<double>::infinity())
      text = "inf";  // --set key=inf, as TOML has it
    if (!text) return wrong(key, node, list, nearest_name(key, text_of(node), {}));
    if (const std::optional<E> value = value_of<E>(*text)) {
      field = *value;
    } else if (const RefusedWord* const other = find_refused_word(key, base::lower_case(*text))) {
      report_.add(other->later ? "this version supports the key" : "values have the type of their key", key,
                  fmt::format("\"{}\" {}; must be {}", *text, other->why, list),
                  fmt::format("\"{}\"", other->instead.empty() ? name_of(field) : other->instead));
    } else {
      wrong(key, node, list, nearest_name(key, *text, names));
    }
  }

  // In quotes; empty when none is near.
  static std::string nearest_name(const char* key, const std::string& text,
                                  const std::vector<std::string>& names) {
    std::string near(word_elsewhere(key, text));
    if (std::find(names.begin(), names.end(), near) == names.end() && !names.empty())
      near = base::nearest_word(text, names).value_or("");
    return near.empty() ? near : fmt::format("\"{}\"", near);
  }

  static std::optional<double> number(const toml::node& node) {
    if (const auto v = node.value_exact<double>()) return v;
    if (const auto v = node.value_exact<int64_t>()) return static_cast<double>(*v);
    return std::nullopt;
  }

  static inline const std::vector<std::string> kGroupKeys = {"match", "name", "lr", "weight_decay", "update"};
  const Leaves& leaves_;
  Report& report_;
};

}  // namespace

void read_keys(Recipe& recipe, const Leaves& leaves, Report& report) {
  for_each_key(recipe, Reader(leaves, report));
}

}  // namespace quintet::config
