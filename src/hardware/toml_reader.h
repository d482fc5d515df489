// Reads a TOML table key by key. A value of the wrong type, and at the end an unknown key, is a UserError
// that names the location and what was expected.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>
// Where assertions are on, toml++ asserts what some invalid files violate; without, it reports the error.
#define TOML_ASSERT(expr) static_assert(true)
#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace quintet::hardware {

class TomlReader {
 public:
  TomlReader(const toml::table& table, std::string where) : table_(table), where_(std::move(where)) {}

  bool has(std::string_view key) const { return table_.contains(key); }
  const std::string& where() const { return where_; }

  void number(std::string_view key, double& value, double scale = 1) {
    const toml::node* node = ask(key);
    if (node == nullptr) return;
    const auto got = node->value<double>();
    if (!got || !std::isfinite(*got) || *got < 0)
      base::fail_user("{}: {} must be a number of at least 0, such as {} = 1.5", where_, key, key);
    value = *got * scale;
  }
  void count(std::string_view key, int& value) {
    const toml::node* node = ask(key);
    if (node == nullptr) return;
    const auto got = node->value_exact<int64_t>();
    if (!got || *got < 0 || *got > (1 << 30))
      base::fail_user("{}: {} must be an integer from 0 to 2^30", where_, key);
    value = static_cast<int>(*got);
  }
  void bytes(std::string_view key, int64_t& value, double scale) {
    if (!has(key)) return;
    double units = 0;
    number(key, units);
    value = std::llround(units * scale);
  }
  void flag(std::string_view key, bool& value) {
    const toml::node* node = ask(key);
    if (node == nullptr) return;
    const auto got = node->value_exact<bool>();
    if (!got) base::fail_user("{}: {} must be true or false", where_, key);
    value = *got;
  }
  void text(std::string_view key, std::string& value) {
    const toml::node* node = ask(key);
    if (node == nullptr) return;
    const auto got = node->value_exact<std::string>();
    if (!got) base::fail_user("{}: {} must be a string in quotes", where_, key);
    value = *got;
  }
  std::vector<std::string> texts(std::string_view key) {
    std::vector<std::string> all;
    const toml::node* node = ask(key);
    if (node == nullptr) return all;
    const toml::array* list = node->as_array();
    if (list == nullptr) base::fail_user("{}: {} must be a list of strings", where_, key);
    for (const toml::node& item : *list) {
      const auto got = item.value_exact<std::string>();
      if (!got) base::fail_user("{}: {} must be a list of strings", where_, key);
      all.push_back(*got);
    }
    return all;
  }
  // nullptr if the key is absent.
  const toml::table* table(std::string_view key) {
    const toml::node* node = ask(key);
    if (node == nullptr) return nullptr;
    if (node->as_table() == nullptr) base::fail_user("{}: {} must be a table", where_, key);
    return node->as_table();
  }
  bool is_table(std::string_view key) const { return table_[key].is_table(); }

  // Call after all known keys have been read: any other key is a UserError.
  void finish() const {
    for (const auto& [key, node] : table_) {
      const std::string name(key.str());
      if (std::find(asked_.begin(), asked_.end(), name) != asked_.end()) continue;
      const auto nearest = base::nearest_word(name, asked_);
      base::fail_user("{}: unknown key '{}'{}; known keys: {}", where_, name,
                      nearest ? fmt::format(" (did you mean '{}'?)", *nearest) : "", fmt::join(asked_, ", "));
    }
  }

 private:
  const toml::node* ask(std::string_view key) {
    asked_.emplace_back(key);
    return table_.get(key);
  }
  const toml::table& table_;
  std::string where_;
  std::vector<std::string> asked_;
};

}  // namespace quintet::hardware
