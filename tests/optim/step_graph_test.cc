// The optimizer step as a logical graph, before it is partitioned.
#include <gtest/gtest.h>

#include <algorithm>

#include "graph/text.h"
#include "graph/verify.h"
#include "optim/step_builder.h"

namespace quintet::optim {
namespace {

using graph::Dim;
using graph::DType;
using graph::Keep;
using graph::Role;

// A matrix and a norm's weight that are trained, and one that is frozen.
graph::Graph model() {
  graph::Graph g;
  g.num_blocks = 2;
  g.add_param("matrix", {DType::BF16, {{Dim::Ffn, 6}, {Dim::Embed, 4}}}, {.block = 1});
  g.add_param("norm", {DType::BF16, {{Dim::Embed, 4}}}, {.decay = false, .block = 1});
  g.add_param("frozen", {DType::BF16, {{Dim::Embed, 4}}}, {.trainable = false});
  return g;
}

graph::StepGraph step(const config::Optimizer& optimizer, config::Precision precision) {
  graph::StepGraph s = build_step(model(), optimizer, precision);
  graph::verify(s.graph, "build step");
  return s;
}

std::vector<std::string> ops(const graph::StepGraph& s) {
  std::vector<std::string> names;
  for (const graph::Node& n : s.graph.nodes()) names.emplace_back(n.op->name);
  return names;
}

const graph::StateDecl* state(const graph::StepGraph& s, const std::string& name) {
  const auto it =
      std::find_if(s.states.begin(), s.states.end(), [&](const auto& decl) { return decl.name == name; });
  return it == s.states.end() ? nullptr : &*it;
}

TEST(StepGraph, NormThenClippingThenOneUpdateForEachParameter) {
  const graph::StepGraph s = step({}, config::Precision::of(DType::F32));
  EXPECT_EQ(ops(s), (std::vector<std::string>{"sum_squares", "clip_scale", "adamw", "adamw"}));
  const graph::Node &norm = s.graph.nodes()[0], &clip = s.graph.nodes()[1], &update = s.graph.nodes()[2];
  EXPECT_EQ(norm.inputs.size(), 2u);
  EXPECT_EQ(clip.inputs[0], norm.outputs[0]);
  EXPECT_EQ(clip.inputs[1], s.loss);
  // gradient, weight, m, v, lr, clip scale, ok, update count
  ASSERT_EQ(update.inputs.size(), 8u);
  EXPECT_EQ(s.find(update.inputs[0])->role, Role::Gradient);
  EXPECT_EQ(update.inputs[5], clip.outputs[1]);
  EXPECT_EQ(update.inputs[6], clip.outputs[2]);
  EXPECT_EQ(update.inputs[7], clip.outputs[4]);
  EXPECT_EQ(update.attrs.integers("ranges"), (std::vector<int64_t>{0, 0, 24, 1}));
  EXPECT_EQ(s.graph.nodes()[3].attrs.integers("ranges"), (std::vector<int64_t>{0, 0, 4, 0}));
}

TEST(StepGraph, StatesFollowPrecisionAndOptimizer) {
  config::Precision p = config::Precision::of(DType::BF16);
  p.moments = DType::BF16;
  const graph::StepGraph adamw = step({}, p);
  const size_t scalars = 5;
  EXPECT_EQ(adamw.states.size(), 2u * 5 + 1 + scalars);
  ASSERT_NE(state(adamw, "matrix"), nullptr);
  EXPECT_EQ(state(adamw, "matrix")->role, Role::Master);
  EXPECT_EQ(state(adamw, "matrix")->type.dtype, DType::F32);
  EXPECT_EQ(state(adamw, "matrix/weight")->keep, Keep::Derived);
  EXPECT_EQ(state(adamw, "matrix/gradient")->keep, Keep::Transient);
  EXPECT_EQ(state(adamw, "norm/adamw.v")->type, (graph::Type{DType::BF16, {{Dim::Embed, 4}}}));
  EXPECT_EQ(state(adamw, "frozen")->role, Role::Weight);
  EXPECT_FALSE(state(adamw, "frozen")->value.valid());
  EXPECT_TRUE(state(adamw, "norm/adamw.v")->of_squares);
  p.master = config::Master::Split;
  const graph::StepGraph split = step({}, p);
  EXPECT_EQ(state(split, "matrix")->encoding, graph::Encoding::Split);
  EXPECT_EQ(graph::stored_bytes(*state(split, "matrix")), 24 * 2);
  EXPECT_EQ(state(split, "matrix/weight")->keep, Keep::Derived);
  EXPECT_FALSE(state(split, "matrix/weight")->value.valid()) << "the step writes the master alone";
  for (const char* name : {"update_count", "skipped_in_row", "skipped_total", "loss_scale", "good_steps"}) {
    ASSERT_NE(state(adamw, name), nullptr) << name;
    EXPECT_EQ(state(adamw, name)->role, Role::Scalar);
    EXPECT_EQ(state(adamw, name)->initial, std::string(name) == "loss_scale" ? 1 : 0);
    EXPECT_EQ(adamw.find(state(adamw, name)->value), nullptr) << "a scalar is not the state of a parameter";
  }
  const config::Optimizer plain{.kind = config::OptimizerKind::Sgd},
      momentum{.kind = config::OptimizerKind::Sgd, .momentum = 0.9};
  EXPECT_EQ(step(plain, config::Precision::of(DType::F64)).states.size(), 2u * 2 + 1 + scalars);
  EXPECT_NE(state(step(momentum, config::Precision::of(DType::F64)), "norm/sgd.velocity"), nullptr);
}

// Codes and scales are states of their own: a byte per element, and a number per block. Small parameters keep
// full moments.
TEST(StepGraph, EightBitMomentsAreCodesAndScales) {
  graph::Graph g;
  g.num_blocks = 1;
  g.add_param("matrix", {DType::F32, {{Dim::Ffn, 13}, {Dim::Embed, 10}}}, {});
  g.add_param("small", {DType::F32, {{Dim::Embed, 127}}}, {});
  const config::Optimizer o{.kind = config::OptimizerKind::AdamW8bit, .block_size = 8};
  const graph::StepGraph s = build_step(g, o, config::Precision::of(DType::F32));
  for (const char* name : {"matrix/adamw8bit.m", "matrix/adamw8bit.v"}) {
    const graph::StateDecl *codes = state(s, name), *scales = state(s, std::string(name) + ".scale");
    ASSERT_TRUE(codes != nullptr && scales != nullptr) << name;
    EXPECT_EQ(codes->role, Role::Moment);
    EXPECT_EQ(codes->type.dtype, DType::U8);
    EXPECT_EQ(codes->block, 1);
    EXPECT_EQ(graph::stored_bytes(*codes), 130);
    EXPECT_EQ(scales->role, Role::Moment);
    EXPECT_EQ(scales->type.dtype, DType::F32);
    EXPECT_EQ(scales->block, 8);
    EXPECT_EQ(graph::stored_bytes(*scales), 17 * 4) << "the last block is shorter";
  }
  EXPECT_EQ(state(s, "matrix/adamw.m"), nullptr);
  EXPECT_NE(state(s, "small/adamw.m"), nullptr);
  EXPECT_EQ(s.state_blocks(), (graph::StateBlocks{{"matrix", 8}}));
  EXPECT_EQ(s.storage_classes(), (graph::StorageClasses{{"matrix", "adamw8bit"}, {"small", "adamw"}}));
}

// A parameter's group says with what and how fast it is updated, and whether weight decay applies to a norm.
TEST(StepGraph, GroupsHaveTheirOwnSettings) {
  graph::Graph g = model();
  config::Optimizer o{.lr = 0.5};
  o.groups = {{.match = "norm", .kind = config::OptimizerKind::Lion, .lr = 0.25, .weight_decay = 0.3},
              {.match = "matrix", .kind = {}, .lr = {}, .weight_decay = {}}};
  for (graph::Param& p : g.params()) p.group = g.value(p.value).name == "norm" ? 0 : 1;
  const graph::StepGraph s = build_step(g, o, config::Precision::of(DType::F32));
  graph::verify(s.graph, "build step");
  EXPECT_EQ(ops(s), (std::vector<std::string>{"sum_squares", "clip_scale", "adamw", "lion"}));
  const graph::Node &matrix = s.graph.nodes()[2], &norm = s.graph.nodes()[3];
  EXPECT_EQ(matrix.attrs.integers("ranges"), (std::vector<int64_t>{0, 0, 24, 1}));
  EXPECT_EQ(norm.attrs.integers("ranges"), (std::vector<int64_t>{0, 0, 4, 3}));
  EXPECT_EQ(norm.attrs.reals("groups"), (std::vector<double>{0.5, 0.3, 1, 0.1}));
  EXPECT_EQ(s.storage_classes(), (graph::StorageClasses{{"matrix", "adamw"}, {"norm", "lion"}}));
  EXPECT_EQ(step({}, config::Precision::of(DType::F32)).storage_classes(),
            (graph::StorageClasses{{"matrix", ""}, {"norm", ""}}));
}

TEST(StepGraph, AnAverageReadsTheUpdatedWeight) {
  const graph::StepGraph s = step({.ema = 0.9}, config::Precision::of(DType::BF16));
  EXPECT_EQ(ops(s), (std::vector<std::string>{"sum_squares", "clip_scale", "adamw", "adamw", "ema", "ema"}));
  const graph::Node &update = s.graph.nodes()[2], &average = s.graph.nodes()[4];
  EXPECT_EQ(average.inputs[0], update.outputs[0]);
  EXPECT_EQ(s.find(average.inputs[1])->role, Role::Ema);
  EXPECT_EQ(state(s, "matrix/ema")->type, state(s, "matrix")->type);
  EXPECT_EQ(state(s, "frozen/ema"), nullptr);
}

// Every op that writes state which outlives the step reads `ok`.
TEST(StepGraph, UpdatesAreGated) {
  const graph::StepGraph s = step({}, config::Precision::of(DType::F32));
  for (const graph::Node& n : s.graph.nodes()) EXPECT_EQ(n.op->gated, n.op->elementwise()) << n.op->name;
}

}  // namespace
}  // namespace quintet::optim
