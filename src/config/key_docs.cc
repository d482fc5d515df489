#include "config/key_docs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <type_traits>

#include "base/text.h"
#include "base/wrap.h"
#include "config/accepted.h"
#include "config/names.h"
#include "config/optimizer_traits.h"
#include "config/print.h"
#include "config/schema.h"

namespace quintet::config {
namespace {

// The values of a recipe by key, as TOML text.
std::map<std::string, std::string> values_of(const Recipe& recipe) {
  std::map<std::string, std::string> values;
  const std::string text = to_toml(recipe);
  std::string section;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    if (line.starts_with('['))
      section = line.substr(1, line.size() - 2) + ".";
    else if (const size_t equals = line.find(" = "); equals != std::string::npos)
      values[section + line.substr(0, equals)] = line.substr(equals + 3);
  }
  return values;
}

template <class T>
std::string type_name() {
  if constexpr (std::is_same_v<T, std::string>) return "string";
  if constexpr (std::is_same_v<T, bool>) return "true or false";
  if constexpr (std::is_same_v<T, int64_t>) return "integer";
  if constexpr (std::is_same_v<T, double>) return "number";
  if constexpr (std::is_same_v<T, std::array<double, 2>>) return "two numbers";
  if constexpr (std::is_same_v<T, std::vector<int64_t>>) return "list of integers";
  if constexpr (std::is_same_v<T, std::vector<double>>) return "list of numbers";
  if constexpr (std::is_same_v<T, std::vector<std::string>>) return "string or list of strings";
  if constexpr (std::is_same_v<T, base::Bytes>) return "bytes, or a size like \"6GiB\"";
  if constexpr (std::is_same_v<T, ReshardAfterForward>) return "true, false or a number of ranks";
  if constexpr (std::is_same_v<T, Grouping>) return "blocks, a size like \"64MiB\", or \"auto\"";
  if constexpr (std::is_same_v<T, LossScale>) return "number or \"dynamic\"";
  if constexpr (std::is_same_v<T, Length>) return "steps, fraction of the run, or \"2B tokens\"";
  if constexpr (std::is_same_v<T, SaveInterval>) return "steps, a time like \"10min\", or \"auto\"";
  if constexpr (std::is_same_v<T, std::vector<BatchStage>>) return "list of { until, global }";
  if constexpr (std::is_same_v<T, std::vector<ParamGroup>>)
    return "list of { match, name, lr, weight_decay, update }";
  if constexpr (std::is_same_v<T, std::vector<BlendSet>>)
    return "list of { name, path, weight or tokens, repeat }";
  if constexpr (std::is_same_v<T, std::vector<EvalSet>>) return "list of { name, path }";
  if constexpr (std::is_same_v<T, DimAxes>) return "table of dims and axes";
  if constexpr (std::is_same_v<T, AxisOrder>) return "list of axes, or \"tp-cp-ep-dp-pp\"";
  if constexpr (std::is_same_v<T, std::vector<RecomputeLayers>>) return "list of { layers, ops }";
  return "";
}

std::string limits_text(const Limits& l) {
  const std::string min = fmt::format("{}", static_cast<double>(l.min));
  if (l.max == kUnbounded) return fmt::format("{} {}", l.open_min ? "above" : "at least", min);
  const auto max =
      l.max >= 1e6 ? fmt::format("2^{}", static_cast<int>(std::log2(l.max))) : fmt::format("{}", l.max);
  if (!l.open_min && !l.open_max) return fmt::format("{} to {}", min, max);
  return fmt::format("{} {}, {} {}", l.open_min ? "above" : "at least", min, l.open_max ? "below" : "at most",
                     max);
}

// " For lamb, lars." of a key that belongs to some optimizers, unless its section is named after the only
// one.
std::string readers_of(std::string_view key) {
  const std::vector<std::string_view> readers = optimizers_that_read(key);
  if (readers.empty() || key.find(fmt::format(".{}.", readers.front())) != std::string_view::npos) return {};
  return fmt::format(" For {}.", fmt::join(readers, ", "));
}

struct Collector {
  std::map<std::string, std::string> values;
  std::vector<KeyFacts>& out;

  template <class T, class... L>
  void operator()(const char* key, const T&, const L&... limits) {
    KeyFacts facts{.key = key,
                   .type = type_name<T>(),
                   .limits = {},
                   .fallback = values[key],
                   .meaning = {},
                   .example = {}};
    if constexpr (std::is_enum_v<T>) {
      for (const auto& [value, name] : Names<T>::kTable)
        if (is_accepted(key, value)) facts.words.emplace_back(name);
      facts.type = "word";
    }
    ((facts.limits = limits_text(limits)), ...);
    const auto docs = key_docs();
    const auto doc = std::find_if(docs.begin(), docs.end(), [&](const KeyDoc& d) { return d.key == key; });
    if (doc != docs.end()) {
      facts.meaning = std::string(doc->meaning) + readers_of(key);
      facts.example = doc->example;
      if (!doc->fallback.empty()) facts.fallback = doc->fallback;
    }
    out.push_back(std::move(facts));
  }
};

// Text in a cell of a Markdown table.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

// A default or an example in code marks, unless it is words.
std::string marked(const std::string& text, bool code) {
  return code && !text.empty() ? "`" + text + "`" : text;
}

std::string type_text(const KeyFacts& k, bool markdown) {
  std::string text = k.type;
  if (!k.words.empty())
    text = markdown ? fmt::format("`\"{}\"`", fmt::join(k.words, "\"`, `\""))
                    : fmt::format("\"{}\"", fmt::join(k.words, "\", \""));
  return k.limits.empty() ? text : fmt::format("{}, {}", text, k.limits);
}

bool has_words_as_default(const KeyFacts& k) {
  const auto docs = key_docs();
  return std::any_of(docs.begin(), docs.end(),
                     [&](const KeyDoc& d) { return d.key == k.key && !d.fallback.empty(); });
}

}  // namespace

const std::vector<KeyFacts>& recipe_keys() {
  static const std::vector<KeyFacts> kAll = [] {
    std::vector<KeyFacts> all;
    const Recipe defaults;
    for_each_key(defaults, Collector{values_of(defaults), all});
    return all;
  }();
  return kAll;
}

const KeyFacts* find_key(std::string_view key) {
  for (const KeyFacts& k : recipe_keys())
    if (k.key == key) return &k;
  return nullptr;
}

std::string describe(const KeyFacts& k) {
  std::string text = k.key + "\n";
  const auto line = [&](const char* label, const std::string& value) {
    text += base::wrapped(fmt::format("  {:<9}{}", label, value), 78, 11) + "\n";
  };
  line("meaning", k.meaning);
  line("type", type_text(k, false));
  line("default", k.fallback);
  const std::string section = k.section();
  line("example", section.empty() ? fmt::format("{} = {}", k.key, k.example)
                                  : fmt::format("[{}] {} = {}", section, k.name(), k.example));
  line("", fmt::format("--set {}={}", k.key,
                       k.example.find(' ') == std::string::npos && k.example[0] != '"'
                           ? k.example
                           : fmt::format("'{}'", k.example)));
  return text;
}

std::string recipe_markdown() {
  std::string text =
      "# Recipe keys\n\n"
      "Every key of a recipe, with its type, limits, default, meaning and an example. `quintet recipe` "
      "prints one of them, a\n"
      "section or all, `quintet init` writes a commented recipe, and `--set` changes any key on the command "
      "line.\n\n"
      "This page is generated from the schema: `make recipe-docs` writes it, and a test compares it.\n\n"
      "A length is a number of steps, a fraction of the run (`0.02`), or a text such as `\"2B tokens\"` or\n"
      "`\"4096 sequences\"`. Paths are relative to the recipe's folder; in `--set`, to the working "
      "directory.\n";
  std::string open = "-";
  for (const KeyFacts& k : recipe_keys()) {
    if (k.section() != open) {
      open = k.section();
      text += open.empty() ? "\n## Top level\n" : fmt::format("\n## [{}]\n", open);
      for (const SectionDoc& s : section_docs())
        if (s.section == open) text += fmt::format("\n{}\n", s.meaning);
      text += "\n| key | type | default | meaning | example |\n|---|---|---|---|---|\n";
    }
    text += fmt::format("| `{}` | {} | {} | {} | `{}` |\n", k.name(), cell(type_text(k, true)),
                        cell(marked(k.fallback, !has_words_as_default(k))), cell(k.meaning), cell(k.example));
  }
  return text;
}

}  // namespace quintet::config
