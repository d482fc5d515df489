// Rules for [memory].
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>

#include "config/byte_size.h"
#include "config/names.h"
#include "config/rule.h"
#include "config/validate.h"

namespace quintet::config {
namespace {

void recompute_keys_fit_kind(const Recipe& r, const Fail& fail) {
  const Memory& m = r.memory;
  if (m.recompute != RecomputeKind::Selective && !m.recompute_ops.empty())
    fail("memory.recompute_ops",
         fmt::format("has no effect with memory.recompute = \"{}\"", name_of(m.recompute)), "[]");
  if (m.recompute != RecomputeKind::Full && m.recompute_every != 1)
    fail("memory.recompute_every",
         fmt::format("{} has no effect with memory.recompute = \"{}\"", m.recompute_every,
                     name_of(m.recompute)),
         "1");
  if (m.recompute != RecomputeKind::Full)
    idle(fail, "memory.recompute_first", m.recompute_first, int64_t{0},
         fmt::format("with memory.recompute = \"{}\"", name_of(m.recompute)));
  else if (m.recompute_first > 0 && m.recompute_every > 1)
    fail("memory.recompute_first",
         fmt::format("{} contradicts memory.recompute_every {}: each selects blocks", m.recompute_first,
                     m.recompute_every),
         "0, or memory.recompute_every 1");
  else if (m.recompute_first > r.model.layers)
    fail("memory.recompute_first",
         fmt::format("{} exceeds the model's {} blocks", m.recompute_first, r.model.layers), "0");
  const bool fit = m.recompute == RecomputeKind::Fit;
  if (fit && m.budget.value == 0)
    fail("memory.budget", "is required by memory.recompute = \"fit\": the memory of one rank", "\"6GiB\"");
  if (!fit && m.budget.value != 0)
    fail("memory.budget",
         fmt::format("{} has no effect with memory.recompute = \"{}\"", byte_size_text(m.budget.value),
                     name_of(m.recompute)),
         "leave it out, or memory.recompute \"fit\"");
  if (m.recompute == RecomputeKind::Full && m.recompute_every > r.model.layers)
    fail("memory.recompute_every",
         fmt::format("{} exceeds the model's {} blocks", m.recompute_every, r.model.layers),
         std::to_string(r.model.layers));
}

void recompute_ops_are_known(const Recipe& r, const Fail& fail) {
  const auto known = recompute_classes();
  for (const std::string& word : r.memory.recompute_ops)
    if (std::find(known.begin(), known.end(), word) == known.end())
      fail("memory.recompute_ops",
           fmt::format("contains \"{}\", which is not an op class; known: {}", word, fmt::join(known, ", ")),
           fmt::format("[\"{}\"]", known.front()));
}

}  // namespace

std::vector<Rule> memory_rules() {
  return {
      {"memory keys match memory.recompute",
       {"memory.recompute", "memory.recompute_ops", "memory.recompute_every", "memory.recompute_first",
        "memory.budget", "model.layers"},
       recompute_keys_fit_kind},
      {"memory.recompute_ops are known op classes", {"memory.recompute_ops"}, recompute_ops_are_known},
  };
}

std::span<const std::string_view> recompute_classes() {
  static constexpr std::array<std::string_view, 8> kClasses = {
      "norm", "activation", "rope", "bias", "dropout", "residual", "linear", "attention"};
  return kClasses;
}

}  // namespace quintet::config
