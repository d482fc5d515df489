// Linear layers on codes with a scale for each block: every layout has the same blocks, so it rounds as one
// rank does; a linear layer agrees with a reference written here; training recovers from outliers.
#include "base/fp8.h"
#include "compiler/compile.h"
#include "config/names.h"
#include "equivalence/checks.h"
#include "equivalence/code_places.h"
#include "graph/fp8_ops.h"
#include "train/fp8_report.h"

namespace quintet::tests::block_codes_test {
namespace {

using config::LinearKind;
using config::Recipe;
using train::Rank;

// Every linear layer of the blocks is quantised on two tensor ranks.
Recipe block_recipe(LinearKind linear, base::DType compute) {
  const bool wide = linear == LinearKind::Fp8Block;
  Recipe r = small_recipe();
  r.model.layers = 2;
  r.model.embed = wide ? 128 : 32;
  r.model.ffn = wide ? 256 : 64;
  r.model.heads = 4;
  r.model.kv_heads = wide ? 4 : 2;
  r.model.head_dim = wide ? 64 : 32;
  r.model.vocab = 256;
  r.data.seq_len = wide ? 128 : 64;
  r.precision = config::Precision::of(compute);
  r.precision.linear = linear;
  return r;
}

const std::vector<Place> kPlaces =
    code_places({{"fewer KV heads than tp", [](Recipe& r) { r.model.kv_heads = 1, r.parallel.tp = 2; }}});

Recipe placed(Recipe r, const Place& place) {
  place.set(r);
  const int64_t block = r.precision.linear == LinearKind::Fp8Block ? 128 : 32;
  if (r.parallel.cp > 1) r.data.seq_len = 2 * r.parallel.cp * block;
  return r;
}

TEST(BlockCodes, EveryLayoutRoundsAsOneRankDoes) {
  for (const Place& place : kPlaces) {
    SCOPED_TRACE(place.name);
    expect_equal(resolved(placed(block_recipe(LinearKind::Mxfp8, base::DType::F64), place), 2, 2), {}, 3);
  }
}

// Blocks of 128 take models too large to compare in every layout.
TEST(BlockCodes, LayoutsOfSquareBlocks) {
  for (const Place& place : kPlaces) {
    const std::string_view name = place.name;
    if (name != "zero 3" && name != "sp" && name != "ring") continue;
    SCOPED_TRACE(name);
    expect_equal(resolved(placed(block_recipe(LinearKind::Fp8Block, base::DType::F64), place), 2, 1), {}, 2);
  }
}

TEST(BlockCodes, TheHeadInChunksUnderTensorParallelism) {
  Recipe r = block_recipe(LinearKind::Mxfp8, base::DType::F64);
  r.precision.fp8_head = true;
  r.loss.chunk = 64;
  r.parallel.tp = 2;
  r.parallel.sequence_parallel = true;
  expect_equal(resolved(r, 2, 2), {}, 3);
}

TEST(BlockCodes, RecomputeChangesNoBit) {
  const auto run_with = [](config::RecomputeKind kind, std::vector<std::string> ops) {
    Recipe r = block_recipe(LinearKind::Fp8Block, base::DType::BF16);
    r.memory.recompute = kind;
    r.memory.recompute_ops = std::move(ops);
    r = resolved(r, 1, 2);
    return run(r, tools::training_data(r, true), {}, 2);
  };
  const tools::LayoutRun none = run_with(config::RecomputeKind::None, {});
  expect_same_bits(none, run_with(config::RecomputeKind::Full, {}));
  expect_same_bits(none, run_with(config::RecomputeKind::Selective, {"norm", "activation"}));
}

// Codes of one byte and their factors, planned to the byte.
TEST(BlockCodes, CodesOfOneByteArePlannedAndTrained) {
  for (const Place& place : kPlaces) {
    SCOPED_TRACE(place.name);
    const Recipe r = resolved(placed(block_recipe(LinearKind::Mxfp8, base::DType::BF16), place), 2, 2);
    const tools::LayoutRun layout = run(r, tools::training_data(r, true), {}, 3);
    for (const auto& peak : layout.peaks) EXPECT_EQ(peak.planned, peak.measured);
    for (const tools::StepState& s : layout.steps) EXPECT_TRUE(std::isfinite(s.result.loss));
  }
}

TEST(BlockCodes, MatricesAreUpdatedAsWithoutCodes) {
  Recipe r = block_recipe(LinearKind::Mxfp8, base::DType::F64);
  r.optimizer.kind = config::OptimizerKind::Muon;
  r.parallel.dp_shard = 3;
  r.parallel.zero = 3;
  expect_equal(resolved(r, 2, 2), {}, 2);
}

TEST(BlockCodes, AFrozenBlockIsQuantisedToo) {
  Recipe r = block_recipe(LinearKind::Mxfp8, base::DType::F64);
  r.optimizer.groups = {{.match = "blocks.0.*", .kind = {}, .lr = {}, .weight_decay = {}, .update = false}};
  r.parallel.tp = 2;
  expect_equal(resolved(r, 2, 1), {}, 2);
}

double decibels(const std::vector<double>& exact, const std::vector<double>& got) {
  double signal = 0, noise = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    signal += exact[i] * exact[i];
    noise += (exact[i] - got[i]) * (exact[i] - got[i]);
  }
  return 10 * std::log10(signal / noise);
}

// The gradients of a model of one block: 20 dB together, in the first step already.
TEST(BlockCodes, GradientsAreCloseToThoseOfTheFullType) {
  for (const LinearKind linear : {LinearKind::Fp8Block, LinearKind::Mxfp8}) {
    SCOPED_TRACE(config::name_of(linear));
    Recipe r = block_recipe(linear, base::DType::F64);
    r.model.layers = 1;
    r.optimizer.lr = 1e-12;
    r = resolved(r, 2, 1);
    Recipe plain = r;
    plain.precision.linear = LinearKind::Compute;
    const data::Dataset text = tools::training_data(r, true);
    const tools::LayoutRun a = run(plain, text, {}, 1), b = run(r, text, {}, 1);
    EXPECT_NEAR(a.steps[0].result.loss, b.steps[0].result.loss, 0.01 * a.steps[0].result.loss);
    EXPECT_NE(a.steps[0].result.loss, b.steps[0].result.loss);
    std::vector<double> exact, got;
    for (const tools::Tensor& t : a.steps[0].gradients) {
      const std::vector<double>& other = values_of(b.steps[0].gradients, t.name);
      exact.insert(exact.end(), t.values.begin(), t.values.end());
      got.insert(got.end(), other.begin(), other.end());
    }
    EXPECT_GT(decibels(exact, got), 20);
  }
}

// A weight far above the usual size costs its own block precision and no other. Nothing ever saturates, and
// without the weight the shares of values that become 0 are what they were.
TEST(BlockCodes, AnOutlierHarmsItsBlockOnly) {
  Recipe r = block_recipe(LinearKind::Mxfp8, base::DType::BF16);
  r.optimizer.lr = 1e-12;
  r = resolved(r, 2, 1);
  const data::Batches batches = tools::training_batches(r, tools::training_data(r, true));
  constexpr int64_t kPlanted = 1, kRemoved = 2;  // from 0
  float before = 0;
  std::vector<double> zeroed;
  tools::run_layout(
      r, batches,
      {.steps = 4, .step = [&](Rank& rank, int64_t step) {
         if (step == kPlanted || step == kRemoved) {
           rank.visit(program::holds_weights, [&](const Rank::Piece& piece, const layout::GlobalIndex&) {
             if (piece.segment->name != "blocks.0.ffn.down.weight") return;
             const exec::HostBytes held = rank.read(piece);
             std::vector<float> all(static_cast<size_t>(piece.count));
             std::memcpy(all.data(), held.data(), static_cast<size_t>(piece.bytes()));
             if (step == kPlanted) before = all[5];
             all[5] = step == kPlanted ? 4000.0f : before;
             rank.write(piece, [&](std::byte* to) {
               std::memcpy(to, all.data(), static_cast<size_t>(piece.bytes()));
             });
           });
           rank.weights_changed();
         }
         const train::StepResult result = rank.step(step, batches);
         const train::Rounding weights = train::roundings_of(
             rank.step_sums(), rank.compiled().logical.scales)[static_cast<size_t>(graph::ScaleOf::Weight)];
         EXPECT_EQ(weights.saturated, 0);
         EXPECT_TRUE(std::isfinite(result.loss));
         zeroed.push_back(weights.zeroed);
         return result;
       }});
  ASSERT_EQ(zeroed.size(), 4u);
  EXPECT_GT(zeroed[1], zeroed[0]);
  EXPECT_LE(zeroed[1], zeroed[0] + 31);  // the others of its block
  EXPECT_EQ(zeroed[2], zeroed[0]);
  EXPECT_EQ(zeroed[3], zeroed[0]);
}

// Without history there is no state to save.
TEST(BlockCodes, NoState) {
  const Recipe r = resolved(block_recipe(LinearKind::Fp8Block, base::DType::BF16), 1, 1);
  const compiler::Compiled c = compiler::compile(r, {});
  EXPECT_FALSE(c.logical.scales.empty());
  for (const graph::StateDecl& s : c.step_graph.states)
    EXPECT_EQ(s.name.find("fp8"), std::string::npos) << s.name;
}

}  // namespace
}  // namespace quintet::tests::block_codes_test
