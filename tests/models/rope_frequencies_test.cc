// The expected values were computed in Python, in double precision, from the published formulas.
#include "models/rope_frequencies.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace quintet::models {
namespace {

using config::RopeScaling;
using config::RopeScalingKind;

// Both sides evaluate about ten correctly rounded operations; pow may differ by one ulp.
void expect_close(double got, double want) { EXPECT_NEAR(got, want, 1e-14 * std::fabs(want)); }

void expect_close(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    SCOPED_TRACE(i);
    expect_close(got[i], want[i]);
  }
}

TEST(RopeFrequencies, Plain) {
  const RopeFrequencies rope = rope_frequencies(1e4, 8, {});
  expect_close(rope.inv_freq, {1.0, 0.1, 0.01, 0.001});
  EXPECT_EQ(rope.scale, 1.0);
  expect_close(rope_frequencies(1e6, 6, {}).inv_freq, {1.0, 0.010000000000000004, 0.00010000000000000006});
}

TEST(RopeFrequencies, Llama3WholeTable) {  // the settings of Llama 3.2 1B
  const RopeScaling scaling{.kind = RopeScalingKind::Llama3, .factor = 32, .original_positions = 8192};
  const RopeFrequencies rope = rope_frequencies(5e5, 64, scaling);
  EXPECT_EQ(rope.scale, 1.0);
  expect_close(rope.inv_freq, {1.0,
                               0.6636012376960885,
                               0.44036660267178046,
                               0.2922278225730151,
                               0.19392274474868576,
                               0.12868737343265052,
                               0.08539710028576561,
                               0.056669621445291044,
                               0.03760603093086393,
                               0.024955408670558694,
                               0.016560440080994446,
                               0.010989528534539826,
                               0.0072926647372171085,
                               0.004839421345719893,
                               0.0032114459947525913,
                               0.001290547928209264,
                               0.00042955679655936815,
                               9.70828780262767e-05,
                               1.9461638184831125e-05,
                               1.291476718704739e-05,
                               8.570255489881478e-06,
                               5.687232150457046e-06,
                               3.7740542941082826e-06,
                               2.5044671007024935e-06,
                               1.661967467795309e-06,
                               1.102883668639601e-06,
                               7.318749675440419e-07,
                               4.856731343010108e-07,
                               3.2229329303788936e-07,
                               2.138742281610915e-07,
                               1.4192720251899592e-07,
                               9.418306725434909e-08});
}

TEST(RopeFrequencies,
     Llama3Bands) {  // Llama 3.1: pairs 0-28 keep, 29-34 are interpolated, 35-63 are slowed by 8
  const RopeScaling scaling{.kind = RopeScalingKind::Llama3, .factor = 8, .original_positions = 8192};
  const std::vector<double> plain = rope_frequencies(5e5, 128, {}).inv_freq;
  const std::vector<double> got = rope_frequencies(5e5, 128, scaling).inv_freq;
  const std::vector<double> between = {0.8281684118371798, 0.6437431331275951, 0.4935071227319711,
                                       0.3711222795178447, 0.2714254770727862, 0.19021074364065016};
  ASSERT_EQ(got.size(), 64u);
  for (size_t i = 0; i < 64; ++i) {
    SCOPED_TRACE(i);
    const double ratio = i <= 28 ? 1.0 : i >= 35 ? 0.125 : between[i - 29];
    EXPECT_NEAR(got[i] / plain[i], ratio, 1e-13);
  }
}

TEST(RopeFrequencies, Yarn) {  // ramp over pairs 2 to 6
  const RopeScaling scaling{.kind = RopeScalingKind::Yarn, .factor = 16, .original_positions = 4096};
  const RopeFrequencies rope = rope_frequencies(1e4, 16, scaling);
  expect_close(rope.scale, 1.2772588722239782);
  expect_close(rope.inv_freq, {1.0, 0.31622776601683794, 0.1, 0.024211188335664154, 0.0053125,
                               0.0009388011803624875, 6.25e-05, 1.976423537605237e-05});
}

TEST(RopeFrequencies,
     YarnOfQwen) {  // the settings that stretch Qwen2.5 to 131072 positions; ramp over 23 to 40
  const RopeScaling scaling{.kind = RopeScalingKind::Yarn, .factor = 4, .original_positions = 32768};
  const RopeFrequencies rope = rope_frequencies(1e6, 128, scaling);
  expect_close(rope.scale, 1.138629436111989);
  std::vector<double> picked;
  for (const size_t i : {0, 20, 30, 39, 40, 45, 50, 54, 63}) picked.push_back(rope.inv_freq[i]);
  expect_close(
      picked, {1.0, 0.01333521432163324, 0.0010643609812470017, 6.490394320837028e-05, 4.445698525097307e-05,
               1.5107409755953319e-05, 5.133812566142866e-06, 2.1649108084001634e-06, 3.102344401879299e-07});
}

TEST(RopeFrequencies, YarnRampOfNoWidthIsAStep) {
  const RopeScaling scaling{
      .kind = RopeScalingKind::Yarn, .factor = 2, .original_positions = 64, .beta_fast = 32, .beta_slow = 11};
  expect_close(rope_frequencies(1e4, 8, scaling).inv_freq, {1.0, 0.05, 0.005, 0.0005});
}

TEST(RopeFrequencies, YarnScale) {
  RopeScaling scaling{.kind = RopeScalingKind::Yarn, .factor = 4, .original_positions = 4096};
  scaling.attention_factor = 0.75;
  EXPECT_EQ(rope_frequencies(1e4, 16, scaling).scale, 0.75);
  scaling = {.kind = RopeScalingKind::Yarn, .factor = 1, .original_positions = 4096};
  EXPECT_EQ(rope_frequencies(1e4, 16, scaling).scale, 1.0);
}

TEST(RopeFrequencies, Refusals) {
  EXPECT_THROW(rope_frequencies(1e4, 7, {}), base::UserError);
  EXPECT_THROW(rope_frequencies(1e4, 0, {}), base::UserError);
  EXPECT_THROW(rope_frequencies(0, 8, {}), base::UserError);
}

}  // namespace
}  // namespace quintet::models
