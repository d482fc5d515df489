// Random legal recipes of tiny models, and what is done with one that fails.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>

#include "config/recipe.h"
#include "data/batch.h"

namespace quintet::tests {

// Which labels count, by their place in the global batch: the same in every layout.
enum class MaskKind : uint8_t {
  All,
  Scattered,  // about two thirds, every third sequence none at all
  FirstOnly,  // only sequences of the first quarter of the batch: other data ranks have nothing to learn
  OneToken,   // at most one label of the whole global batch
};

struct Case {
  config::Recipe recipe;
  MaskKind mask = MaskKind::All;
  bool poison = false;
  int64_t steps = 3;
  bool tight = false;  // memory.recompute = "fit", its budget yet to be found; only while a case is drawn
};

data::LabelMask make_mask(MaskKind kind, int64_t global);

// A legal case; the same generator gives the same sequence of cases.
Case random_case(std::mt19937_64& random);

// The case with its batch worked out, or nothing when it breaks a rule.
std::optional<Case> legal(Case c);

// Why the layout does not compute what one rank computes; empty when it does. A legal recipe that the engine
// refuses fails too: its text begins with kRefused.
inline constexpr std::string_view kRefused = "refused: ";
std::optional<std::string> failure_of(const Case& c);

// The smallest case that still fails, by leaving out one feature after another as long as that keeps it
// failing; a refusal only stands for a refusal.
Case shrink(Case failing);

std::string to_text(const Case& c);  // the recipe, and what is not in it as comments

// A small Llama for named tests: 2 layers, embed 16, 4 heads over 2 KV heads, f64, two sequences of 8 per
// data rank.
config::Recipe small_recipe();
// Sets the batch to `micro` sequences per data rank and micro-batch and checks every rule.
config::Recipe resolved(config::Recipe recipe, int64_t micro, int64_t accumulation);

}  // namespace quintet::tests
