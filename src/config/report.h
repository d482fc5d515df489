// Collects problems while a recipe is parsed and validated, and tracks keys with invalid values, so that one
// mistake is reported once and not again by every rule that reads the key.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "config/problem.h"

namespace quintet::config {

class Report {
 public:
  void add(std::string name, std::string key, std::string rule, std::string nearest = {}) {
    spoiled_.insert(key);
    problems_.push_back({std::move(key), std::move(rule), std::move(nearest), std::move(name)});
  }
  // Marks a key whose value is derived from an invalid one.
  void spoil(std::string key) { spoiled_.insert(std::move(key)); }
  bool usable(const std::string& key) const { return !spoiled_.contains(key); }

  std::vector<Problem>& problems() { return problems_; }

 private:
  std::vector<Problem> problems_;
  std::set<std::string> spoiled_;
};

}  // namespace quintet::config
