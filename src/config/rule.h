// Shared by the rule files (rules*.cc). A rule checks a whole recipe and reports what is wrong with it.
#pragma once

#include <fmt/format.h>

#include <string>
#include <type_traits>
#include <vector>

#include "config/names.h"
#include "config/recipe.h"
#include "config/report.h"

namespace quintet::config {

struct Rule;

// How a rule reports a problem.
struct Fail {
  const Rule& rule;
  Report& report;
  void operator()(const std::string& key, std::string text, std::string nearest = {}) const;
};

struct Rule {
  const char* name;
  // Keys that the rule reads; it is skipped when one of them is already invalid.
  std::vector<const char*> keys;
  void (*check)(const Recipe& r, const Fail& fail);
};

inline void Fail::operator()(const std::string& key, std::string text, std::string nearest) const {
  report.add(rule.name, key, std::move(text), std::move(nearest));
}

// A key that another setting makes ineffective must keep its default: no accepted option is silently ignored.
template <class T>
void idle(const Fail& fail, const char* key, const T& value, const T& idle_value, const std::string& why) {
  if (value == idle_value) return;
  if constexpr (std::is_same_v<T, bool>)
    fail(key, "has no effect " + why, idle_value ? "true" : "false");
  else if constexpr (std::is_enum_v<T>)
    fail(key, fmt::format("\"{}\" has no effect {}", name_of(value), why),
         fmt::format("\"{}\"", name_of(idle_value)));
  else if constexpr (std::is_same_v<T, std::string>)
    fail(key, fmt::format("\"{}\" has no effect {}", value, why), fmt::format("\"{}\"", idle_value));
  else
    fail(key, fmt::format("{} has no effect {}", value, why), fmt::format("{}", idle_value));
}

std::vector<Rule> geometry_rules();          // rules_geometry.cc: sizes of the model
std::vector<Rule> layout_rules();            // rules_layout.cc: batch, data and tensor axes
std::vector<Rule> precision_rules();         // rules_precision.cc: [precision] but for linear
std::vector<Rule> pipeline_rules();          // rules_pipeline.cc: schedule, chunks, stages
std::vector<Rule> memory_rules();            // rules_memory.cc: [memory]
std::vector<Rule> optimizer_rules();         // rules_optimizer.cc: [optimizer]
std::vector<Rule> block_rules();             // rules_model.cc: keys of single blocks
std::vector<Rule> expert_rules();            // rules_model.cc: [model.moe]
std::vector<Rule> latent_attention_rules();  // rules_model.cc: [model.mla]
std::vector<Rule> mesh_rules();              // rules_mesh.cc: context and expert axes, mesh cuts
std::vector<Rule> training_rules();          // rules_training.cc: schedules, batch.ramp, guards
std::vector<Rule> data_rules();              // rules_data.cc: [data] and the sets of [eval]
std::vector<Rule> quantised_rules();         // rules_quantised.cc: precision.linear and its keys
std::vector<Rule> size_rules();              // rules_size.cc: what is too large to compile

inline constexpr int64_t kMaxWorld = int64_t{1} << 20;

// Parallel::world() in a type that cannot overflow for axes within their limits.
__int128 wide_world(const Parallel& parallel);
// Whether the axes multiply to at most kMaxWorld ranks. Rules that multiply axes check this first.
bool world_in_reach(const Parallel& parallel);

// "dp_replicate 1 x dp_shard 4 x tp 2"; pp and cp are included where they are used.
std::string layout_text(const Parallel& parallel);

}  // namespace quintet::config
