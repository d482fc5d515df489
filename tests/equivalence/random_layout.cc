#include "equivalence/random_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "config/print.h"
#include "config/validate.h"
#include "equivalence/random_recipe.h"
#include "tools/verify.h"
#include "train/memory_check.h"

namespace quintet::tests {

using config::Family;
using config::Recipe;

data::LabelMask make_mask(MaskKind kind, int64_t global) {
  switch (kind) {
    case MaskKind::All:
      return {};
    case MaskKind::Scattered:
      return [](const data::LabelSite& s) {
        return s.sequence % 3 != 1 && (s.sequence * 7 + s.position * 5 + s.step) % 3 != 0;
      };
    case MaskKind::FirstOnly:
      return
          [global](const data::LabelSite& s) { return s.sequence < (global + 3) / 4 && s.position % 2 == 0; };
    case MaskKind::OneToken:
      return [global](const data::LabelSite& s) {
        return s.sequence == (s.step + global / 2) % global && s.position == 1;
      };
  }
  return {};
}

Recipe resolved(Recipe r, int64_t micro, int64_t accumulation) {
  r.batch = {micro * accumulation * r.parallel.dp(), micro, accumulation};
  return config::resolve(r);
}

Recipe small_recipe() {
  Recipe r;
  r.name = "small";
  r.model = {.family = Family::Llama,
             .layers = 2,
             .embed = 16,
             .ffn = 24,
             .heads = 4,
             .kv_heads = 2,
             .head_dim = 4,
             .vocab = 259};
  r.data.seq_len = 8;
  r.precision = config::Precision::of(base::DType::F64);
  r.optimizer.lr = 1e-2;
  r.run.steps = 8;
  r.run.seed = 5;
  return r;
}

std::optional<Case> legal(Case c) {
  try {
    c.recipe.batch.global = c.recipe.batch.micro * c.recipe.batch.accumulation * c.recipe.parallel.dp();
    c.recipe = config::resolve(c.recipe);
    return c;
  } catch (const config::RecipeError&) {
    return std::nullopt;
  }
}

namespace {

// memory.recompute = "fit" with a budget below what the layout needs without recompute, as far as that is
// possible.
void make_tight(Recipe& r) {
  r.memory = {};
  r.memory.recompute = config::RecomputeKind::Fit;
  r.memory.budget = base::Bytes(int64_t{1} << 50);
  const std::vector<int64_t> planned = train::find_fit(r, {}, 1)->planned;
  const int64_t most = *std::max_element(planned.begin(), planned.end());
  for (const int64_t percent : {85, 93, 97, 100}) {
    r.memory.budget = base::Bytes(most * percent / 100);
    try {
      train::find_fit(r, {}, 1);
      return;
    } catch (const base::UserError&) {
      if (percent == 100) throw;
    }
  }
}

}  // namespace

Case random_case(std::mt19937_64& random) {
  for (;;) {
    auto c = legal(draw_case(random));
    if (!c) continue;
    if (c->tight) make_tight(c->recipe);
    return *c;
  }
}

std::optional<std::string> failure_of(const Case& c) {
  try {
    const tools::VerifyResult r = tools::verify(c.recipe, {.steps = c.steps,
                                                           .synthetic = true,
                                                           .poison = c.poison,
                                                           .mask = make_mask(c.mask, c.recipe.batch.global)});
    if (r.pass()) return std::nullopt;
    return tools::to_table(r);
  } catch (const base::UserError& error) {
    return std::string(kRefused) + error.what();
  } catch (const std::exception& error) {
    return error.what();
  }
}

std::string to_text(const Case& c) {
  const char* masks[] = {"all", "scattered", "first only", "one token"};
  return fmt::format("# {}; mask: {}; poison: {}; steps: {}\n{}", tools::describe(c.recipe.parallel),
                     masks[static_cast<int>(c.mask)], c.poison, c.steps, config::to_toml(c.recipe));
}

}  // namespace quintet::tests
