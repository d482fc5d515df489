// Random legal recipes of tiny models, and the shrinking of one that fails.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>

#include "config/recipe.h"
#include "data/batch.h"

namespace quintet::tests {

// Which labels count, by their index in the global batch: the same in every layout.
enum class MaskKind : uint8_t {
  All,
  Scattered,  // about two thirds, none in every third sequence
  FirstOnly,  // only sequences of the first quarter of the batch: other data ranks have no labels
  OneToken,   // at most one label of the whole global batch
};

struct Case {
  config::Recipe recipe;
  MaskKind mask = MaskKind::All;
  bool poison = false;
  int64_t steps = 3;
  bool tight = false;  // memory.recompute = "fit", with its budget not yet set; only while drawing
};

data::LabelMask make_mask(MaskKind kind, int64_t global);

// A legal case; the same generator gives the same sequence of cases.
Case random_case(std::mt19937_64& random);

// The case with its batch resolved, or nothing when it violates a rule.
std::optional<Case> legal(Case c);

// Why the layout does not compute what one rank computes; empty when it does. A legal recipe that the engine
// refuses fails too: its text begins with kRefused.
inline constexpr std::string_view kRefused = "refused: ";
std::optional<std::string> failure_of(const Case& c);

// The smallest case that still fails, found by removing one feature after another as long as it keeps
// failing; a refusal is only replaced by a refusal.
Case shrink(Case failing);

std::string to_text(const Case& c);  // the recipe, and the rest as comments

// A small Llama for named tests: 2 layers, embed 16, 4 heads over 2 KV heads, f64, two sequences of 8 per
// data rank.
config::Recipe small_recipe();

// A group of parameters that are not updated.
inline config::ParamGroup frozen(std::string match) {
  config::ParamGroup group{.match = std::move(match), .kind = {}, .lr = {}, .weight_decay = {}};
  group.update = false;
  return group;
}
// Sets the batch to `micro` sequences per data rank and micro-batch and checks every rule.
config::Recipe resolved(config::Recipe recipe, int64_t micro, int64_t accumulation);

}  // namespace quintet::tests
