#include "config/parse.h"

#include <fmt/ranges.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <type_traits>

#include "base/error_codes.h"
#include "base/file.h"
#include "base/text.h"
#include "config/accepted.h"
#include "config/byte_size.h"
#include "config/codes.h"
#include "config/hf/config.h"
#include "config/length.h"
#include "config/names.h"
#include "config/nearest.h"
#include "config/not_toml.h"
#include "config/overrides.h"
#include "config/place_paths.h"
#include "config/presets.h"
#include "config/resolve.h"
#include "config/schema.h"
#include "config/sound_advice.h"
#include "config/unsupported.h"
#include "config/validate.h"

namespace quintet::config {
namespace {

using Leaves = std::map<std::string, const toml::node*>;
using Places = std::map<std::string, toml::source_region>;  // of values and of unknown keys

constexpr const char* kFreezeKey = "optimizer.freeze";  // replaced by optimizer.groups

// ---- the TOML tree

void set_place(Problem& problem, const toml::source_region& at, std::string_view text) {
  problem.line = static_cast<int>(at.begin.line);
  problem.column = static_cast<int>(at.begin.column);
  problem.columns = at.end.line == at.begin.line ? static_cast<int>(at.end.column - at.begin.column) : 1;
  for (int n = 1; n < problem.line; ++n) text.remove_prefix(std::min(text.find('\n') + 1, text.size()));
  problem.source = text.substr(0, text.find_first_of("\r\n"));
}

toml::table parse_tree(std::string_view text, const std::string& source) {
  try {
    return toml::parse(text, source);
  } catch (const toml::parse_error& error) {
    const auto& at = error.source().begin;
    Problem problem;
    set_place(problem, error.source(), text);
    std::string lines = excerpt(problem);
    if (!lines.empty()) lines = "\n" + lines.substr(0, lines.size() - 1);
    const std::string likely = likely_cause(text, error.description());
    fail_coded(kIsToml, "{}:{}:{}: invalid TOML: {}{}", source, at.line, at.column,
               likely.empty() ? std::string(error.description()) : likely, lines);
  }
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
      out << '"' << n.get() << '"';
    else
      out << n;
  });
  return out.str();
}

// ---- known keys

struct KnownKeys {
  std::vector<std::string> keys;   // supported
  std::set<std::string> all;       // including unsupported ones
  std::set<std::string> sections;  // every proper prefix of a key
  std::set<std::string> tables;    // keys whose names below them are the user's

  KnownKeys() {
    const Recipe recipe;
    for_each_key(recipe, [&]<class T>(const char* key, const T&, const auto&...) {
      keys.emplace_back(key);
      if constexpr (std::is_same_v<T, DimAxes>) tables.insert(key);
    });
    all.insert(keys.begin(), keys.end());
    for (const UnsupportedKey& later : unsupported_keys()) all.insert(later.key);
    all.insert(kFreezeKey);
    for (const std::string& key : all)
      for (size_t dot = key.find('.'); dot != std::string::npos; dot = key.find('.', dot + 1))
        sections.insert(key.substr(0, dot));
  }
};

const KnownKeys& known_keys() {
  static const KnownKeys kKnown;
  return kKnown;
}

void add_unknown(Report& report, const std::string& key) {
  std::string near;
  if (report.problems().size() < kMaxProblems) {  // the others are only counted
    near = key_elsewhere(key);
    if (near.empty()) near = answer_elsewhere(key);
    if (near.empty()) near = nearest_key(key, known_keys().keys);
  }
  report.add("every key is known", key, "is not a recipe key", near);
}

// Collects the values of known keys and reports everything else.
void flatten(const toml::table& table, const std::string& prefix, Leaves& leaves, Report& report,
             Places& places) {
  const KnownKeys& known = known_keys();
  for (const auto& [name, node] : table) {
    const std::string key = prefix.empty() ? std::string(name.str()) : prefix + "." + std::string(name.str());
    places[key] = node.source();
    const toml::table* inner = node.as_table();
    if (known.all.contains(key)) {
      if (inner != nullptr && !known.tables.contains(key))
        report.add("values have the type of their key", key, "must be a value, not a section");
      else
        leaves[key] = &node;
    } else if (known.sections.contains(key)) {
      if (inner != nullptr)
        flatten(*inner, key, leaves, report, places);
      else
        report.add("values have the type of their key", key,
                   fmt::format("must be a section, not a value; got {}", text_of(node)),
                   fmt::format("[{}]", key));
    } else if (inner != nullptr && !inner->empty()) {
      flatten(*inner, key, leaves, report, places);
    } else {
      places[key] = name.source();
      add_unknown(report, key);
    }
  }
}

// optimizer.freeze = ["a*", "b"] became groups without updates: the message spells the same patterns out.
void refuse_replaced_keys(const Leaves& leaves, Report& report) {
  const auto leaf = leaves.find(kFreezeKey);
  if (leaf == leaves.end()) return;
  std::string groups;
  const auto add = [&](const toml::node& pattern) {
    groups += fmt::format("{}{{ match = {}, update = false }}", groups.empty() ? "" : ", ", text_of(pattern));
  };
  if (const toml::array* list = leaf->second->as_array())
    for (const toml::node& item : *list) add(item);
  else
    add(*leaf->second);
  report.add("this version supports the key", kFreezeKey,
             "is no longer a key: parameters are frozen by optimizer.groups, whose first match applies",
             fmt::format("optimizer.groups = [{}]", groups));
}

void refuse_unsupported_keys(const Leaves& leaves, Report& report) {
  refuse_replaced_keys(leaves, report);
  for (const UnsupportedKey& later : unsupported_keys()) {
    const auto leaf = leaves.find(later.key);
    if (leaf == leaves.end()) continue;
    const std::string text = text_of(*leaf->second);
    if (later.neutral.empty() || text != later.neutral)
      report.add("this version supports the key", later.key, fmt::format("{} is not supported yet", text),
                 later.neutral.empty() ? std::string("leave it out") : std::string(later.neutral));
  }
}

// ---- typed values

// Sets the fields whose keys are given. A value of the wrong type leaves its field unchanged.
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
      wrong(key, node, "an integer", whole_number(node));
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
    const toml::array* array = node.as_array();
    if (array == nullptr) return wrong(key, node, "a list of integers");
    std::vector<int64_t> values;
    for (const toml::node& item : *array) {
      const auto v = item.value_exact<int64_t>();
      if (!v) return wrong(key, item, "a list of integers");
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
  void read(const char* key, const toml::node& node, DimAxes& field) {
    const toml::table* table = node.as_table();
    if (table == nullptr) return wrong(key, node, "a table of dims and axes", "{ channels = \"tp\" }");
    for (const auto& [name, axis] : *table) {
      DimAxis value{};
      read(key, axis, value);
      field[std::string(name.str())] = value;
    }
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
      wrong(key, node, kLengthWords, "\"2B tokens\"");
  }
  void read(const char* key, const toml::node& node, SaveInterval& field) {
    std::optional<SaveInterval> interval;
    if (const auto steps = node.value_exact<int64_t>(); steps && *steps >= 0 && *steps <= int64_t{1} << 30)
      interval = SaveInterval{SaveInterval::Unit::Steps, *steps};
    if (const auto text = node.value_exact<std::string>()) interval = parse_interval(*text);
    if (interval)
      field = *interval;
    else
      wrong(key, node, kIntervalWords, "\"10min\"");
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
      field = {true, kFirstLossScale};
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
    if (!text) return wrong(key, node, list);
    if (const std::optional<E> value = value_of<E>(*text)) {
      field = *value;
    } else if (const RefusedWord* const other = find_refused_word(key, base::lower_case(*text))) {
      report_.add(other->later ? "this version supports the key" : "values have the type of their key", key,
                  fmt::format("\"{}\" {}; must be {}", *text, other->why, list),
                  fmt::format("\"{}\"", other->instead.empty() ? name_of(field) : other->instead));
    } else {
      const std::optional<E> meant = synonym_of<E>(base::lower_case(*text));
      const std::string near = meant && is_accepted(key, *meant)
                                   ? std::string(name_of(*meant))
                                   : base::nearest_word(*text, names).value_or("");
      wrong(key, node, list, near.empty() ? "" : fmt::format("\"{}\"", near));
    }
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

// ---- presets and defaults that depend on other keys

std::string given_text(const Leaves& leaves, const char* key) {
  const auto leaf = leaves.find(key);
  return leaf == leaves.end() ? "" : leaf->second->value_exact<std::string>().value_or("");
}

// Values that what the key names would provide are unknown, not missing.
void spoil_model(const Leaves& leaves, Report& report) {
  for (const std::string& key : known_keys().keys)
    if (key.starts_with("model.") && key != "model.preset" && !leaves.contains(key)) report.spoil(key);
}

void start_from_model(Recipe& recipe, const Model* preset, const Leaves& leaves);

void start_from_preset(Recipe& recipe, const Leaves& leaves, Report& report) {
  const std::string name = given_text(leaves, "model.preset");
  if (name.empty()) return;
  if (const Model* preset = find_preset(name))
    start_from_model(recipe, preset, leaves);
  else
    spoil_model(leaves, report);  // another rule reports the unknown preset
}

// A path of the recipe, made absolute: relative to the recipe's folder, or, from an override, to the working
// directory. Values of overrides have no line (apply_override).
base::Path placed(const Leaves& leaves, const char* key, const std::string& text,
                  const std::optional<base::Path>& folder) {
  const auto leaf = leaves.find(key);
  const bool in_file = folder && leaf != leaves.end() && leaf->second->source().begin.line > 0;
  const base::Path path(with_home(text));
  return std::filesystem::absolute(in_file ? *folder / path : path).lexically_normal();
}

// The model of a Hugging Face folder, and its tokenizer. A recipe that has all sizes, as the resolved one of
// a run, is complete without the folder.
void start_from_hf(Recipe& recipe, const Leaves& leaves, const std::optional<base::Path>& folder,
                   Report& report) {
  const std::string text = given_text(leaves, "model.hf");
  if (text.empty()) return;
  if (!given_text(leaves, "model.preset").empty())
    report.add("model.hf and model.preset exclude each other", "model.preset",
               "contradicts model.hf: both set the sizes of the model", "leave one of them out");
  const base::Path path = placed(leaves, "model.hf", text, folder);
  recipe.model.hf = path.string();
  if (const auto why = why_no_hf_folder(path, text)) {
    const auto is_missing = [&](const char* key) { return !leaves.contains(key); };
    const std::array sizes = {"model.layers", "model.embed", "model.heads", "model.vocab", "data.tokenizer"};
    if (std::none_of(sizes.begin(), sizes.end(), is_missing)) return;
    report.add("model.hf is a Hugging Face folder", "model.hf", *why);
    return spoil_model(leaves, report);
  }
  const HfConfig config = read_hf_config(base::read_file(path / kHfConfigFile));
  for (const std::string& problem : config.problems)
    report.add("config.json is supported", "model.hf", fmt::format("{}: {}", kHfConfigFile, problem));
  if (!config.problems.empty()) return spoil_model(leaves, report);
  recipe.model = config.model;
  recipe.model.hf = path.string();
  const std::string rope = given_text(leaves, "model.rope_scaling.kind");
  if (!rope.empty() && rope != name_of(config.model.rope_scaling.kind)) recipe.model.rope_scaling = {};
  if (leaves.contains("data.tokenizer")) return;
  if (has_tokenizer(path))
    recipe.data.tokenizer = path.string();
  else
    report.add("model.hf has a tokenizer", "data.tokenizer",
               fmt::format("is required: \"{}\" has neither tokenizer.json nor tokenizer.model", text));
}

// The texts of the model's keys.
std::map<std::string, std::string> model_texts(const Recipe& recipe) {
  std::map<std::string, std::string> texts;
  for_each_key(recipe, [&]<class T>(const char* key, const T& v, const auto&...) {
    if (!std::string_view(key).starts_with("model.")) return;
    if constexpr (std::is_enum_v<T>)
      texts[key] = fmt::format("\"{}\"", name_of(v));
    else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>)
      texts[key] = fmt::format("{}", v);
  });
  return texts;
}

// `before` is the recipe as model.hf sets it.
void check_agreement_with_hf(const Recipe& before, const Recipe& recipe, const Leaves& leaves,
                             Report& report) {
  if (before.model.hf.empty() || before.model.layers == 0) return;
  const auto hf = model_texts(before), here = model_texts(recipe);
  const bool upcycling = recipe.model.moe.upcycle && before.model.moe.experts == 0;
  if (recipe.model.moe.upcycle && !upcycling)
    report.add("model keys agree with config.json", "model.moe.upcycle",
               fmt::format("contradicts {} of the folder in model.hf, which has {} experts already",
                           kHfConfigFile, before.model.moe.experts),
               "false");
  if (recipe.model.mtp.layers > 0) {
    const HfConfig config = read_hf_config(base::read_file(base::Path(before.model.hf) / kHfConfigFile));
    if (recipe.model.mtp.layers > config.predict_layers)
      report.add(
          "model keys agree with config.json", "model.mtp.layers",
          fmt::format("{} contradicts {} of the folder in model.hf, which has {} layers for multi-token "
                      "prediction (num_nextn_predict_layers)",
                      recipe.model.mtp.layers, kHfConfigFile, config.predict_layers),
          fmt::format("{}", config.predict_layers));
  }
  for (const auto& [key, text] : here)
    if (leaves.contains(key) && !is_free_beside_hf(key, upcycling) && hf.at(key) != text &&
        report.usable(key))
      report.add("model keys agree with config.json", key,
                 fmt::format("{} contradicts {} of the folder in model.hf, which says {}", text,
                             kHfConfigFile, hf.at(key)),
                 "leave it out");
}

// The model, without the values that given keys make stale: a derived value follows its source.
void start_from_model(Recipe& recipe, const Model* preset, const Leaves& leaves) {
  const auto given = [&](const char* key) { return leaves.contains(std::string("model.") + key); };
  Model m = *preset;
  if ((given("embed") || given("heads")) && preset->head_dim == preset->embed / preset->heads) m.head_dim = 0;
  if (given("heads") && preset->kv_heads == preset->heads) m.kv_heads = 0;
  if (given("embed") && preset->family == Family::Gpt2 && preset->ffn == 4 * preset->embed) m.ffn = 0;
  const Mla& mla = preset->mla;
  if ((given("mla.nope_dim") || given("mla.rope_dim")) && preset->head_dim == mla.nope_dim + mla.rope_dim)
    m.head_dim = 0;
  if (!preset->has_dense_block() && preset->ffn == preset->moe.ffn) {  // one width with two names
    if (given("ffn")) m.moe.ffn = 0;
    if (given("moe.ffn") || given("moe.first_dense") || given("moe.every")) m.ffn = 0;
  }
  const auto switched_off = [&](const char* key) {
    const auto found = leaves.find(std::string("model.") + key);
    return found != leaves.end() && found->second->value_exact<int64_t>() == 0;
  };
  if (switched_off("moe.experts")) m.moe = {};
  if (switched_off("mla.kv_rank") && mla.kv_rank > 0) m.mla = {}, m.head_dim = 0;
  const auto kind = leaves.find("model.rope_scaling.kind");
  if (kind != leaves.end() &&
      text_of(*kind->second) != fmt::format("\"{}\"", name_of(preset->rope_scaling.kind)))
    m.rope_scaling = {};
  recipe.model = m;
}

void check_family_of_preset(const Recipe& recipe, Report& report) {
  const Model* preset = find_preset(recipe.model.preset);
  if (preset == nullptr || preset->family == recipe.model.family) return;
  report.add("model.family matches model.preset", "model.family",
             fmt::format("\"{}\" contradicts model.preset \"{}\", which has family \"{}\"",
                         name_of(recipe.model.family), preset->preset, name_of(preset->family)),
             fmt::format("\"{}\"", name_of(preset->family)));
}

// master, moments, gradients and loss_scale default to what compute implies, reduce to gradients.
void default_precision(Precision& p, const Leaves& leaves) {
  const Precision wide = Precision::of(p.compute);
  if (!leaves.contains("precision.master")) p.master = wide.master;
  if (!leaves.contains("precision.moments")) p.moments = wide.moments;
  if (!leaves.contains("precision.gradients")) p.gradients = wide.gradients;
  if (!leaves.contains("precision.reduce")) p.reduce = p.gradients;
  if (!leaves.contains("precision.loss_scale")) p.loss_scale = wide.loss_scale;
}

// Replaces the path of a schedule file in the recipe's folder by its path from the working directory; a file
// that is not there is relative to the working directory already.
void find_schedule_file(Parallel& p, const base::Path& folder) {
  const auto file = schedule_file(p.schedule);
  if (file && base::file_exists(folder / *file)) p.schedule = "file:" + (folder / *file).string();
}

// The largest file that is read as a recipe.
constexpr int64_t kMaxRecipeBytes = int64_t{4} << 20;

// Options of axes with one rank.
void neutralise(Recipe& r, const Leaves& leaves, std::vector<std::string>& notes) {
  Parallel& p = r.parallel;
  const Parallel neutral;
  const auto idle = [&]<class T>(const char* key, T& value, const T& without, const std::string& why) {
    if (value == without || !leaves.contains(key)) return;
    notes.push_back(fmt::format("{} = {} has no effect with {}", key, text_of(*leaves.at(key)), why));
    value = without;
  };
  const auto alone = [](int64_t axis) { return axis == 1; };
  if (alone(p.dp_shard) && alone(p.cp)) {
    idle("parallel.zero", p.zero, neutral.zero, "parallel.dp_shard = 1 and parallel.cp = 1");
    // These follow from it.
    const std::string why = "parallel.dp_shard = 1: nothing is sharded";
    idle("parallel.reshard_after_forward", p.reshard_after_forward, neutral.reshard_after_forward, why);
    if (p.prefetch > 1) idle("parallel.prefetch", p.prefetch, neutral.prefetch, why);
  }
  if (alone(p.tp)) idle("parallel.sequence_parallel", p.sequence_parallel, false, "parallel.tp = 1");
  if (alone(p.cp)) {
    idle("parallel.cp_method", p.cp_method, neutral.cp_method, "parallel.cp = 1");
    idle("parallel.ulysses", p.ulysses, neutral.ulysses, "parallel.cp = 1");
  }
  if (alone(p.pp)) {
    idle("parallel.schedule", p.schedule, neutral.schedule, "parallel.pp = 1");
    if (p.chunks != 1) idle("parallel.chunks", p.chunks, neutral.chunks, "parallel.pp = 1");
    idle("parallel.stages", p.stages, neutral.stages, "parallel.pp = 1");
  }
}

// Whether suggestions are tried, which reads the recipe again for each one; not for files larger than a
// recipe.
enum class Advise : uint8_t { Yes, No };
constexpr size_t kMaxAdvisedBytes = size_t{64} << 10;

Recipe read(std::string_view text, const std::vector<std::string>& overrides, const std::string& source,
            const std::optional<base::Path>& folder, std::vector<std::string>* notes, Advise advise) {
  toml::table tree = parse_tree(text, source);  // a copy of a tree has no lines
  for (const std::string& override : overrides) apply_override(tree, override);

  Report report;
  Leaves leaves;
  Places places;
  flatten(tree, "", leaves, report, places);
  refuse_unsupported_keys(leaves, report);

  Recipe recipe;
  start_from_preset(recipe, leaves, report);
  start_from_hf(recipe, leaves, folder, report);
  const Recipe before = recipe;
  for_each_key(recipe, Reader(leaves, report));
  recipe.model.hf = before.model.hf;  // absolute
  check_agreement_with_hf(before, recipe, leaves, report);
  const Given given = [&](const std::string& key) { return leaves.contains(key); };
  // Before anything is derived: an explicit 0 is not the same as a missing value.
  check_limits(recipe, given, Keys::Given, report);
  check_family_of_preset(recipe, report);
  default_precision(recipe.precision, leaves);
  std::vector<std::string> idle;
  neutralise(recipe, leaves, idle);

  if (folder) {
    const auto in_file = [&](const char* key) {  // values of overrides have no line (apply_override)
      const auto leaf = leaves.find(key);
      return leaf != leaves.end() && leaf->second->source().begin.line > 0;
    };
    place_paths(recipe, *folder, in_file, leaves.contains("run.dir"), report);
    find_schedule_file(recipe.parallel, *folder);
  }
  fill_in(recipe, report);
  check_limits(recipe, given, Keys::All, report);
  check_rules(recipe, report);

  std::vector<Problem>& problems = report.problems();
  if (problems.empty()) {
    if (notes != nullptr) notes->insert(notes->end(), idle.begin(), idle.end());
    return recipe;
  }
  if (advise == Advise::Yes && problems.size() <= kMaxProblems && text.size() <= kMaxAdvisedBytes)
    make_advice_sound(problems, [&](const std::vector<std::string>& changes) {
      std::vector<std::string> all = overrides;
      all.insert(all.end(), changes.begin(), changes.end());
      try {
        read(text, all, source, folder, nullptr, Advise::No);
      } catch (const RecipeError& e) {
        return e.problems();
      } catch (const base::UserError& e) {  // the change does not apply to this recipe
        return std::vector<Problem>(1, {.key = changes[0], .rule = e.what()});
      }
      return std::vector<Problem>();
    });
  for (size_t i = 0; i < std::min(problems.size(), kMaxProblems); ++i) {
    auto place = places.find(problems[i].key);
    // A key of an entry, such as optimizer.groups.lr, is shown at the list.
    if (const size_t dot = problems[i].key.rfind('.'); place == places.end() && dot != std::string::npos)
      if (const std::string list = problems[i].key.substr(0, dot); leaves.contains(list))
        place = places.find(list);
    if (place != places.end() && place->second.begin.line > 0) set_place(problems[i], place->second, text);
  }
  throw RecipeError(source, std::move(problems));
}

}  // namespace

Recipe parse(std::string_view text, const std::vector<std::string>& overrides, const std::string& source,
             std::vector<std::string>* notes) {
  return read(text, overrides, source, std::nullopt, notes, Advise::Yes);
}

Recipe load(const std::string& path, const std::vector<std::string>& overrides,
            std::vector<std::string>* notes) {
  if (base::directory_exists(path)) {
    const base::Path inside = base::Path(path) / "recipe.toml";
    throw base::UserError(
        fmt::format("'{}' is a folder, and a recipe is a file{}", path,
                    base::file_exists(inside) ? fmt::format(": did you mean '{}'?", inside.string()) : ""),
        base::code_of_origin("base/file"));
  }
  if (base::file_exists(path))
    if (const int64_t bytes = base::size_of_file(path); bytes > kMaxRecipeBytes)
      base::fail_user("'{}' has {}; a recipe has at most {}", path, base::human_bytes(bytes),
                      base::human_bytes(kMaxRecipeBytes));
  return read(base::read_file(path), overrides, path, base::Path(path).parent_path(), notes, Advise::Yes);
}

}  // namespace quintet::config
