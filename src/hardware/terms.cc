#include "hardware/terms.h"

#include <algorithm>

#include "hardware/tables.h"

namespace quintet::hardware {
namespace {

template <class T>
const T& named(const std::vector<T>& list, const T& otherwise) {
  const auto it =
      std::find_if(list.begin(), list.end(), [&](const T& t) { return t.name == otherwise.name; });
  return it == list.end() ? otherwise : *it;
}

// For each table under `key`: the catalogue entry of that name, modified by `read`.
template <class T, class Find, class Read>
std::vector<T> changed(TomlReader& set, std::string_view key, Find find, Read read) {
  std::vector<T> out;
  const toml::table* entries = set.table(key);
  if (entries == nullptr) return out;
  for (const auto& [name, node] : *entries) {
    const std::string where = fmt::format("{}: {}.{}", set.where(), key, name.str());
    if (!node.is_table()) base::fail_user("{} is not a table of terms", where);
    T entry = find(name.str());
    TomlReader reader(*node.as_table(), where);
    read(reader, entry);
    reader.finish();
    out.push_back(std::move(entry));
  }
  return out;
}

}  // namespace

bool Terms::concerns(std::string_view name) const {
  return only.empty() || std::find(only.begin(), only.end(), name) != only.end();
}
const Stack& Terms::of(const Stack& stack) const { return named(stacks, stack); }
const Accelerator& Terms::of(const Accelerator& accelerator) const {
  return named(accelerators, accelerator);
}

std::vector<Terms> read_terms(std::string_view text, const std::string& source_name) {
  toml::table file;
  try {
    file = toml::parse(text, source_name);
  } catch (const toml::parse_error& e) {
    base::fail_user("{}: line {}: {}", source_name, e.source().begin.line, e.description());
  }
  const toml::array* sets = file["set"].as_array();
  if (sets == nullptr || file.size() != 1)
    base::fail_user("{}: expected [[set]] and nothing else", source_name);
  std::vector<Terms> all;
  for (const toml::node& node : *sets) {
    if (!node.is_table()) base::fail_user("{}: a set is not a table", source_name);
    TomlReader reader(*node.as_table(), fmt::format("{}: set {}", source_name, all.size() + 1));
    Terms terms;
    reader.text("name", terms.name);
    terms.only = reader.texts("only");
    terms.stacks = changed<Stack>(reader, "stack", find_stack, read_stack);
    terms.accelerators =
        changed<Accelerator>(reader, "accelerator", find_accelerator,
                             [](TomlReader& r, Accelerator& a) { read_efficiency(r, a.efficiency); });
    reader.finish();
    all.push_back(std::move(terms));
  }
  return all;
}

}  // namespace quintet::hardware
