// What each recipe key means. Types, limits and defaults come from schema.h and recipe.h; meaning and example
// are in key_docs_table.cc. `quintet recipe`, docs/recipe.md, `quintet init`, completion and man pages all
// read them here.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quintet::config {

// A row of the table.
struct KeyDoc {
  std::string_view key;
  std::string_view meaning;
  std::string_view example;        // a TOML value
  std::string_view fallback = {};  // the default in words, where it is derived or there is none
};
std::span<const KeyDoc> key_docs();

struct SectionDoc {
  std::string_view section;  // "model.moe"; empty: keys before the first section
  std::string_view meaning;
};
std::span<const SectionDoc> section_docs();

// All that is known about a key.
struct KeyFacts {
  std::string key;                      // "parallel.tp"
  std::string type;                     // "integer"
  std::string limits;                   // "1 to 65536"; empty: none
  std::string fallback;                 // what holds without the key: a TOML value, or words
  std::vector<std::string> words = {};  // that a key of fixed words takes
  std::string meaning, example;

  std::string section() const {
    return key.substr(0, key.rfind('.') == std::string::npos ? 0 : key.rfind('.'));
  }
  std::string name() const { return key.substr(key.rfind('.') + 1); }
};
// In the order of recipes.
const std::vector<KeyFacts>& recipe_keys();
// Null for an unknown key.
const KeyFacts* find_key(std::string_view key);

// A few lines about one key, for the terminal.
std::string describe(const KeyFacts& key);
// docs/recipe.md.
std::string recipe_markdown();

}  // namespace quintet::config
