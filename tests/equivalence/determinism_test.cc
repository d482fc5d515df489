// The same run gives the same bits, whatever overlaps; other dtypes stay within their derived bounds.
#include <gtest/gtest.h>

#include "equivalence/checks.h"

namespace quintet::tests {
namespace {

using config::Recipe;
using tools::LayoutRun;

Recipe layout_recipe(base::DType dtype, int64_t zero, int64_t prefetch) {
  Recipe r = small_recipe();
  r.model.qk_norm = true;
  r.precision = config::Precision::of(dtype);
  r.parallel.dp_replicate = 2;
  r.parallel.dp_shard = 2;
  r.parallel.zero = zero;
  r.parallel.tp = 2;
  r.parallel.sequence_parallel = true;
  if (zero > 0) r.parallel.prefetch = prefetch;
  return resolved(r, 2, 2);
}

LayoutRun run(const Recipe& r, int threads = 1, bool poison = false) {
  return tools::run_layout(r, tools::training_batches(r, tools::training_data(r, true)),
                           {.steps = 3, .poison = poison, .threads = threads});
}

class Determinism : public testing::TestWithParam<base::DType> {};

TEST_P(Determinism, SameBitsEveryTime) {
  for (const int64_t zero : {0, 2, 3}) {
    const Recipe r = layout_recipe(GetParam(), zero, 1);
    const LayoutRun first = run(r);
    expect_same_bits(run(r), first);
    expect_same_bits(run(r), first);
  }
}

TEST_P(Determinism, SameBitsWithMoreKernelThreads) {
  const Recipe r = layout_recipe(GetParam(), 3, 1);
  expect_same_bits(run(r, 2), run(r, 1));
}

// Poison mode runs everything on one thread in issue order: nothing overlaps.
TEST_P(Determinism, SameBitsWithAndWithoutOverlap) {
  for (const int64_t zero : {0, 1, 2, 3}) {
    const Recipe r = layout_recipe(GetParam(), zero, 2);
    expect_same_bits(run(r), run(r, 1, true));
  }
}

// When parameters are gathered, and what is kept of them, changes no bit.
TEST_P(Determinism, SameBitsWhateverIsGatheredWhen) {
  const LayoutRun first = run(layout_recipe(GetParam(), 3, 1));
  for (const int64_t prefetch : {0, 2}) expect_same_bits(run(layout_recipe(GetParam(), 3, prefetch)), first);
  Recipe kept = layout_recipe(GetParam(), 3, 1);
  kept.parallel.reshard_after_forward.kind = config::ReshardAfterForward::Kind::No;
  expect_same_bits(run(kept), first);
}

TEST_P(Determinism, LayoutsStayWithinTheBoundsOfTheDtype) {
  for (const int64_t zero : {0, 1, 2, 3}) {
    const tools::VerifyResult r =
        tools::verify(layout_recipe(GetParam(), zero, 1), {.steps = 3, .synthetic = true});
    EXPECT_TRUE(r.pass()) << tools::to_table(r);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Determinism, testing::Values(base::DType::F32, base::DType::BF16),
                         [](const auto& info) { return std::string(base::to_string(info.param)); });

TEST(Bounds, GradientsOfStepOneAreTightInF32) {
  const tools::VerifyResult r =
      tools::verify(layout_recipe(base::DType::F32, 3, 1), {.steps = 1, .synthetic = true});
  EXPECT_LT(r.tolerance, 1e-4);
  EXPECT_TRUE(r.pass()) << tools::to_table(r);
}

TEST(Bounds, NarrowWireAndMoments) {
  Recipe r = layout_recipe(base::DType::BF16, 2, 1);
  r.precision.reduce = base::DType::BF16;
  r.precision.moments = base::DType::BF16;
  const tools::VerifyResult v = tools::verify(r, {.steps = 2, .synthetic = true});
  EXPECT_TRUE(v.pass()) << tools::to_table(v);
}

}  // namespace
}  // namespace quintet::tests
