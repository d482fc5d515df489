// Fused ops (passes/fold.h) give the same bits as the ops that they replace.
#include <gtest/gtest.h>

#include "exec/random_tensors.h"

namespace quintet::tests {
namespace {

using graph::Attrs;
using graph::Dim;
using graph::Type;

class Folded : public testing::Test {
 protected:
  std::vector<HostTensor> run(const graph::OpDef& op, const Attrs& attrs, const std::vector<HostTensor>& in) {
    std::vector<Type> types;
    for (const HostTensor& t : in) types.push_back(t.type);
    const std::vector<Type> out = op.infer(types, attrs);
    return run_op(op, attrs, in, out, whole_parts(op, types, out, attrs));
  }
  static void expect_same(const HostTensor& got, const HostTensor& want, const char* what) {
    EXPECT_EQ(got.type, want.type) << what;
    EXPECT_EQ(got.bytes, want.bytes) << what;
  }

  RandomTensors random_{3};
  const graph::DimSize rows_{Dim::Tokens, 29}, width_{Dim::Embed, 37};
  const HostTensor x_ = random_.real({rows_, width_}), other_ = random_.real({rows_, width_}),
                   dy_ = random_.real({rows_, width_}), w_ = random_.real({width_}, 1),
                   b_ = random_.real({width_});
  const Attrs eps_ = {{"eps", 1e-5}}, none_;
};

Attrs backward_attrs(int64_t again) { return {{"out", std::string("f64")}, {"again", again}}; }
Attrs layer_attrs(int64_t bias, int64_t again) {
  return {{"out", std::string("f64")}, {"bias", bias}, {"again", again}};
}

TEST_F(Folded, SumAndNorm) {
  const HostTensor sum = run(graph::kAdd, none_, {x_, other_})[0];
  const auto rms = run(graph::kAddRmsNorm, eps_, {x_, other_, w_}),
             rms_alone = run(graph::kRmsNorm, eps_, {sum, w_}),
             layer = run(graph::kAddLayerNorm, eps_, {x_, other_, w_, b_}),
             layer_alone = run(graph::kLayerNorm, eps_, {sum, w_, b_});
  expect_same(rms[0], sum, "sum");
  expect_same(rms[1], rms_alone[0], "y");
  expect_same(rms[2], rms_alone[1], "rstd");
  expect_same(layer[0], sum, "sum");
  expect_same(layer[1], layer_alone[0], "y");
  expect_same(layer[2], layer_alone[1], "mean");
  expect_same(layer[3], layer_alone[2], "rstd");
}

TEST_F(Folded, GradientsOfRmsNorm) {
  const auto forward = run(graph::kRmsNorm, eps_, {x_, w_});
  const HostTensor dx = run(graph::kRmsNormDx, none_, {dy_, x_, w_, forward[1]})[0],
                   dw = run(graph::kRmsNormDw, {{"out", std::string("f64")}}, {dy_, x_, forward[1]})[0];
  for (const int64_t again : {0, 1}) {
    const auto all = run(graph::kRmsNormBackward, backward_attrs(again), {dy_, x_, w_, forward[1]});
    ASSERT_EQ(all.size(), again ? 3u : 2u);
    expect_same(all[0], dx, "dx");
    expect_same(all[1], dw, "dw");
    if (again) expect_same(all[2], forward[0], "y");
  }
}

TEST_F(Folded, GradientsOfLayerNorm) {
  const auto forward = run(graph::kLayerNorm, eps_, {x_, w_, b_});
  const HostTensor &mean = forward[1], &rstd = forward[2];
  const HostTensor dx = run(graph::kLayerNormDx, none_, {dy_, x_, w_, mean, rstd})[0];
  for (const int64_t bias : {0, 1}) {
    const Attrs dw_attrs = {{"out", std::string("f64")}, {"bias", bias}};
    const auto sums = run(graph::kLayerNormDw, dw_attrs, {dy_, x_, mean, rstd});
    for (const int64_t again : {0, 1}) {
      const auto all =
          run(graph::kLayerNormBackward, layer_attrs(bias, again), {dy_, x_, w_, b_, mean, rstd});
      ASSERT_EQ(all.size(), static_cast<size_t>(2 + bias + again));
      expect_same(all[0], dx, "dx");
      expect_same(all[1], sums[0], "dw");
      if (bias) expect_same(all[2], sums[1], "db");
      if (again) expect_same(all.back(), forward[0], "y");
    }
  }
}

}  // namespace
}  // namespace quintet::tests
