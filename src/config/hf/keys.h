// The vocabulary of HfFamily::keys: what a key of a config.json means for config::Model, in both directions.
// Internal to this folder: installed headers do not depend on the JSON library.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "config/recipe.h"

namespace quintet::config {

using HfJson = nlohmann::ordered_json;

// What is wrong with a config.json, all at once.
struct HfProblems {
  std::vector<std::string> list;
  template <class... Args>
  void add(fmt::format_string<Args...> text, Args&&... args) {
    list.push_back(fmt::format(text, std::forward<Args>(args)...));
  }
};

struct HfKey {
  std::vector<std::string> names;  // keys that it covers; the first is written
  std::function<void(const HfJson& config, Model& model, HfProblems& problems)> read;
  std::function<void(const Model& model, HfJson& config)> write;
};

// The first of the names that is present and not null; null when there is none.
inline const HfJson* find_key(const HfJson& config, const std::vector<std::string>& names) {
  for (const std::string& name : names)
    if (const auto found = config.find(name); found != config.end() && !found->is_null()) return &*found;
  return nullptr;
}

// Reads a number or switch; false with a problem when it has another type or is out of range.
inline bool read_value(const std::string& name, const HfJson& json, int64_t& value, HfProblems& problems) {
  const bool whole = json.is_number_integer() && json.get<double>() >= 0 && json.get<double>() <= 1 << 30;
  if (whole)
    value = json.get<int64_t>();
  else
    problems.add("{} must be an integer from 0 to {}, got {}", name, 1 << 30, json.dump());
  return whole;
}
inline bool read_value(const std::string& name, const HfJson& json, double& value, HfProblems& problems) {
  if (json.is_number())
    value = json.get<double>();
  else
    problems.add("{} must be a number, got {}", name, json.dump());
  return json.is_number();
}
inline bool read_value(const std::string& name, const HfJson& json, bool& value, HfProblems& problems) {
  if (json.is_boolean())
    value = json.get<bool>();
  else
    problems.add("{} must be true or false, got {}", name, json.dump());
  return json.is_boolean();
}

// Names that say the same must not say two things: transformers takes one of them, depending on its version.
inline void require_one_value(const HfJson& config, const std::vector<std::string>& names,
                              HfProblems& problems) {
  const HfJson* const first = find_key(config, names);
  for (const std::string& name : names)
    if (const HfJson* const other = find_key(config, {name}); other != nullptr && *other != *first)
      problems.add("{} = {} contradicts {}, which means the same", name, other->dump(), first->dump());
}

inline const HfJson kHfRequired(HfJson::value_t::discarded);

// A field of the model: value({"num_local_experts"}, kHfRequired, &Model::moe, &Moe::experts). `absent` is
// what a missing or null key means.
template <class... Path>
HfKey value(const std::vector<std::string>& names, const HfJson& absent, Path... path) {
  const auto field = [path...](auto& model) -> auto& { return (model.*....*path); };
  return {.names = names,
          .read =
              [=](const HfJson& config, Model& model, HfProblems& problems) {
                const HfJson* found = find_key(config, names);
                if (found == nullptr)
                  found = &absent;
                else
                  require_one_value(config, names, problems);
                if (found->is_discarded())
                  problems.add("lacks {}", names[0]);
                else
                  read_value(names[0], *found, field(model), problems);
              },
          .write = [=](const Model& model, HfJson& config) { config[names[0]] = field(model); }};
}

// The same for a size that may be absent, as 0 is here: written as null, which transformers tells from 0.
template <class... Path>
HfKey optional_size(const std::string& name, Path... path) {
  HfKey key = value({name}, 0, path...);
  key.write = [=](const Model& model, HfJson& config) {
    const int64_t size = (model.*....*path);
    config[name] = size > 0 ? HfJson(size) : HfJson();
  };
  return key;
}

// A key with one value that the engine can compute; a missing or null key has it.
inline HfKey only(const std::string& name, const HfJson& value) {
  return {.names = {name},
          .read =
              [=](const HfJson& config, Model&, HfProblems& problems) {
                const HfJson* const found = find_key(config, {name});
                if (found != nullptr && *found != value)
                  problems.add("{} = {} is not supported; only {}", name, found->dump(), value.dump());
              },
          .write = [=](const Model&, HfJson& config) { config[name] = value; }};
}

// A key that files have beside another one and that says the same.
inline HfKey repeated(const std::string& name, const std::string& of) {
  return {.names = {name},
          .read =
              [=](const HfJson& config, Model&, HfProblems& problems) {
                const HfJson* const found = find_key(config, {name});
                const HfJson* const original = find_key(config, {of});
                if (found != nullptr && (original == nullptr || *found != *original))
                  problems.add("{} = {} contradicts {} = {}", name, found->dump(), of,
                               original == nullptr ? "null" : original->dump());
              },
          .write = [](const Model&, HfJson&) {}};
}

// A property of every model of the family, which no key says.
inline HfKey always(const std::function<void(Model&)>& set) {
  return {.names = {},
          .read = [=](const HfJson&, Model& model, HfProblems&) { set(model); },
          .write = [](const Model&, HfJson&) {}};
}

// Keys that do not change what the model computes.
inline HfKey irrelevant(std::vector<std::string> names) {
  return {.names = std::move(names),
          .read = [](const HfJson&, Model&, HfProblems&) {},
          .write = [](const Model&, HfJson&) {}};
}

// Keys that transformers gives every configuration and that do not change what a model computes (config.cc).
const std::set<std::string>& hf_irrelevant_keys();

// rope_theta, and rope_scaling or (from transformers 5) rope_parameters.
struct HfRope {
  double theta = 1e4;  // without a key
  std::vector<std::string> theta_keys = {"rope_theta"};
  // The share of a head that is rotated: the keys that say so (empty: all of it is), and what a missing key
  // means.
  std::vector<std::string> share_keys = {};
  double share = 1;
  // Layers with windows have their own theta: nested rope_parameters, or rope_local_base_freq.
  bool by_layer_type = false;
};
HfKey rope_key(HfRope form);
inline HfKey rope_key(double default_theta) { return rope_key({.theta = default_theta}); }
inline HfRope partial_rope(double share) { return {.share_keys = {"partial_rotary_factor"}, .share = share}; }

}  // namespace quintet::config
