// Recipes: an accepted text prints as TOML that parses to the same recipe.
#include "config/parse.h"
#include "config/print.h"
#include "fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quintet;
  return fuzz::run([&] {
    const config::Recipe recipe = config::parse(fuzz::text_of(data, size), {});
    fuzz::require(config::parse(config::to_toml(recipe), {}) == recipe, "a recipe reads back otherwise");
    config::to_json(recipe);
  });
}
