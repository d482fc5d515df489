#include <gtest/gtest.h>

#include "base/error.h"
#include "program/support.h"
#include "program/text.h"

namespace quintet::program {
namespace {

using namespace testing;

// Every rank's program equals the one that it would compile alone, to the last wait.
TEST(CompileWorld, EqualsOneRankAfterAnother) {
  for (const testing::Layout& layout : all_layouts()) {
    SCOPED_TRACE(layout.name);
    const config::Recipe recipe = small_recipe(layout.overrides);
    const auto world = compiler::compile_world(recipe, {.evaluate = true}, 2);
    ASSERT_EQ(world.size(), static_cast<size_t>(recipe.parallel.world()));
    const TextOptions expanded{.form = TextOptions::Form::Expanded};
    for (size_t r = 0; r < world.size(); ++r) {
      const auto alone =
          compiler::compile(recipe, {.rank = base::RankId(static_cast<int32_t>(r)), .evaluate = true});
      EXPECT_EQ(to_text(world[r].program, world[r].step, {.full = true}),
                to_text(alone.program, alone.step, {.full = true}));
      EXPECT_EQ(to_text(world[r].program, world[r].step, expanded),
                to_text(alone.program, alone.step, expanded));
      EXPECT_EQ(to_text(world[r].program, world[r].evaluate, expanded),
                to_text(alone.program, alone.evaluate, expanded));
    }
  }
}

}  // namespace
}  // namespace quintet::program
