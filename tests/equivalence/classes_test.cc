// Random layouts: every rank's program is that of its class at other mesh coordinates, and verifying the
// representatives together is equivalent to verifying all ranks.
#include <gtest/gtest.h>

#include "compiler/compile.h"
#include "equivalence/random_layout.h"
#include "program/verify.h"

namespace quintet::tests {
namespace {

TEST(Classes, RepresentAllRanksOfRandomLayouts) {
  constexpr uint64_t kLayouts = 200, kSeed = 1000;
  int64_t ranks = 0, classes = 0;
  for (uint64_t i = 0; i < kLayouts; ++i) {
    std::mt19937_64 random(kSeed + i);
    const config::Recipe recipe = random_case(random).recipe;
    SCOPED_TRACE(fmt::format("seed {}\n{}", kSeed + i, to_text(Case{recipe})));
    // Each program is verified as a member of its class there.
    const std::vector<compiler::RankProgram> world = compiler::compile_world(recipe, {}, 1);
    const compiler::Ranks few = compiler::compile_classes(recipe, {}, 1);
    std::vector<const program::Program*> programs;
    std::vector<const program::Expanded*> steps;
    for (const compiler::RankProgram& r : world) {
      const int place = few.layout.mesh.index(r.program.rank, few.layout.pipeline);
      ASSERT_EQ(r.class_hash, few.program[static_cast<size_t>(place)].class_hash)
          << "rank " << r.program.rank.value;
      programs.push_back(&r.program);
      steps.push_back(&r.step);
    }
    ASSERT_NO_THROW(program::verify_together(programs, steps));
    ranks += static_cast<int64_t>(world.size());
    classes += static_cast<int64_t>(few.program.size());
  }
  EXPECT_GT(ranks, 2 * classes) << "classes of one rank prove nothing";
}

}  // namespace
}  // namespace quintet::tests
