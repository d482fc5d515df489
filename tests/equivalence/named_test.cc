// Bugs of other trainers, one test each. All in f64 against one rank, where nothing but the layout can
// differ.
#include "config/names.h"
#include "equivalence/checks.h"

namespace quintet::tests {
namespace {

using config::Recipe;
using tools::LayoutRun;

// One sequence of plain text per sample, so that every label not masked counts.
Recipe unpacked() {
  Recipe r = small_recipe();
  r.data.pack = false;
  return r;
}

TEST(Tokens, OneValidTokenUnderDataParallelism) {
  for (const int64_t zero : {0, 1, 2, 3}) {
    Recipe r = unpacked();
    r.parallel.dp_shard = 4;
    r.parallel.zero = zero;
    r = resolved(r, 1, 2);
    const data::Dataset dataset = tools::training_data(r, true);
    EXPECT_EQ(run(r, dataset, only(5, 3), 1).steps[0].result.tokens, 1);
    expect_equal(r, only(5, 3));
  }
}

TEST(Tokens, OneValidTokenUnderTensorParallelism) {
  for (const bool sequence_parallel : {false, true}) {
    Recipe r = unpacked();
    r.parallel.tp = 4;
    r.parallel.sequence_parallel = sequence_parallel;
    expect_equal(resolved(r, 2, 1), only(1, 6));
  }
}

// The mean over all tokens, not the mean of the micro-batches' means: one has 8 tokens, another 1.
TEST(Tokens, AccumulationWithUnevenMasksIsNotAMeanOfMeans) {
  Recipe r = unpacked();
  r.parallel.dp_replicate = 2;
  r = resolved(r, 1, 3);
  const data::LabelMask mask = [](const data::LabelSite& s) { return s.position <= s.sequence; };
  expect_equal(r, mask);

  // And by hand: the loss of the batch is the sum over its tokens divided by their number.
  const data::Dataset dataset = tools::training_data(r, true);
  const LayoutRun whole = run(r, dataset, mask, 1);
  double sum = 0;
  int64_t tokens = 0;
  for (int64_t g = 0; g < r.batch.global; ++g) {
    const LayoutRun one = run(
        r, dataset, [&](const data::LabelSite& s) { return s.sequence == g && mask(s); }, 1);
    sum += one.steps[0].result.loss * static_cast<double>(one.steps[0].result.tokens);
    tokens += one.steps[0].result.tokens;
  }
  EXPECT_EQ(whole.steps[0].result.tokens, tokens);
  EXPECT_NEAR(whole.steps[0].result.loss, sum / static_cast<double>(tokens), 1e-12);
}

TEST(Tokens, FullyMaskedMicroBatchesAndRanks) {
  for (const int64_t zero : {0, 2, 3}) {
    Recipe r = unpacked();
    r.parallel.dp_shard = 2;
    r.parallel.zero = zero;
    r.parallel.tp = 2;
    expect_equal(resolved(r, 2, 3), [](const data::LabelSite& s) { return s.sequence / 2 == 1; });
  }
}

TEST(Tokens, NothingValidAtAll) {
  Recipe r = unpacked();
  r.parallel.dp_shard = 2;
  r.parallel.zero = 3;
  r = resolved(r, 1, 2);
  const data::LabelMask nothing = [](const data::LabelSite&) { return false; };
  const data::Dataset dataset = tools::training_data(r, true);
  const LayoutRun empty = run(r, dataset, nothing);
  EXPECT_EQ(empty.steps[0].result.tokens, 0);
  EXPECT_EQ(empty.steps[0].result.loss, 0);
  EXPECT_EQ(empty.steps[0].result.grad_norm, 0);
  expect_equal(r, nothing);
}

TEST(Tokens, PackedDocumentsDoNotSeeEachOther) {
  Recipe r = small_recipe();
  r.parallel.dp_shard = 2;
  r.parallel.zero = 2;
  r.parallel.tp = 2;
  r.parallel.sequence_parallel = true;
  expect_equal(resolved(r, 2, 2));
}

TEST(Norm, TiedWeightsCountOnce) {
  for (const int64_t tp : {1, 2, 4}) {
    Recipe r = small_recipe();
    r.model.tied = true;
    r.parallel.dp_shard = 2;
    r.parallel.zero = 1;
    r.parallel.tp = tp;
    expect_norm_counts_once(resolved(r, 2, 1));
  }
}

TEST(Norm, ReplicatedWeightsCountOnce) {
  for (const bool sequence_parallel : {false, true}) {
    Recipe r = small_recipe();
    r.model.qk_norm = r.model.qkv_bias = true;
    r.parallel.tp = 4;  // KV heads shared by two ranks each, norms by all four
    r.parallel.sequence_parallel = sequence_parallel;
    expect_norm_counts_once(resolved(r, 2, 1));
  }
}

TEST(Norm, HybridShardingCountsOnce) {
  for (const int64_t zero : {1, 2, 3}) {
    Recipe r = small_recipe();
    r.parallel.dp_replicate = 2;
    r.parallel.dp_shard = 2;
    r.parallel.zero = zero;
    r.parallel.tp = 2;
    expect_norm_counts_once(resolved(r, 1, 2));
  }
}

// Norms of other kinds: the largest element, which is that of all ranks, and the sums of Adafactor. (Trust
// ratios of LAMB and LARS do not change if both of their norms count a parameter twice.)
TEST(Norm, ReplicatedWeightsUnderOtherNorms) {
  Recipe r = small_recipe();
  r.model.qk_norm = r.model.qkv_bias = true;
  r.parallel.tp = 4;
  r.optimizer.clip = config::ClipKind::Inf;
  expect_equal(resolved(r, 2, 1));
  r.optimizer.clip = config::ClipKind::Norm;
  r.optimizer.kind = config::OptimizerKind::Adafactor;
  r.optimizer.adafactor.eps1 = 1e-6;  // far above rounding errors
  expect_equal(resolved(r, 2, 1));
}

TEST(Norm, ClippingIsByTheGlobalNorm) {
  Recipe r = small_recipe();
  r.optimizer.kind = config::OptimizerKind::Sgd;
  r.optimizer.weight_decay = 0;
  r.optimizer.clip_norm = 1e-3;
  r.parallel.dp_shard = 2;
  r.parallel.zero = 3;
  r.parallel.tp = 2;
  r = resolved(r, 2, 1);
  expect_equal(r);
  const LayoutRun layout = run(r, tools::training_data(r, true), {}, 1);
  double moved = 0;
  for (size_t t = 0; t < layout.initial.size(); ++t)
    for (size_t i = 0; i < layout.initial[t].values.size(); ++i)
      moved += std::pow(layout.steps[0].weights[t].values[i] - layout.initial[t].values[i], 2);
  EXPECT_NEAR(std::sqrt(moved), r.optimizer.lr * 1e-3, 1e-9 * r.optimizer.lr);

  r.optimizer.clip = config::ClipKind::Inf;
  expect_equal(r);
  const LayoutRun largest = run(r, tools::training_data(r, true), {}, 1);
  double most = 0;
  for (size_t t = 0; t < largest.initial.size(); ++t)
    for (size_t i = 0; i < largest.initial[t].values.size(); ++i)
      most = std::max(most, std::abs(largest.steps[0].weights[t].values[i] - largest.initial[t].values[i]));
  EXPECT_NEAR(most, r.optimizer.lr * 1e-3, 1e-9 * r.optimizer.lr);
}

TEST(Ragged, VocabularyNotDivisibleByTp) {
  for (const int64_t vocab : {256, 257, 258, 259, 263})
    for (const bool tied : {false, true}) {
      Recipe r = small_recipe();
      r.model.vocab = vocab;
      r.model.tied = tied;
      r.parallel.tp = 4;
      r.parallel.sequence_parallel = true;
      expect_equal(resolved(r, 2, 1), {}, 2);
    }
}

TEST(Ragged, FewerKvHeadsThanTp) {
  for (const int64_t kv_heads : {1, 2, 4, 8})
    for (const bool sequence_parallel : {false, true}) {
      Recipe r = small_recipe();
      r.model.heads = 8;
      r.model.kv_heads = kv_heads;
      r.model.qkv_bias = r.model.qk_norm = true;
      r.parallel.tp = 8;
      r.parallel.sequence_parallel = sequence_parallel;
      expect_equal(resolved(r, 1, 1), {}, 2);
    }
}

TEST(Ragged, OddSequencesAndChunksOfTheLoss) {
  for (const int64_t chunk : {0, 1, 3, 4, 15, 1000}) {
    Recipe r = small_recipe();
    r.data.seq_len = 5;
    r.loss.chunk = chunk;
    r.parallel.dp_shard = 3;
    r.parallel.zero = 3;
    r.parallel.tp = 2;
    expect_equal(resolved(r, 3, 2), {}, 2);
  }
}

TEST(Dropout, MasksAreEqualInEveryLayout) {
  Recipe gpt2 = small_recipe();
  gpt2.model = {.family = config::Family::Gpt2,
                .layers = 2,
                .embed = 16,
                .ffn = 24,
                .heads = 4,
                .vocab = 257,
                .max_positions = 8,
                .dropout = 0.3};
  const auto with = [&](int64_t dp_shard, int64_t zero, int64_t tp, bool sequence_parallel) {
    Recipe r = gpt2;
    r.parallel.dp_shard = dp_shard;
    r.parallel.zero = zero;
    r.parallel.tp = tp;
    r.parallel.sequence_parallel = sequence_parallel;
    expect_equal(resolved(r, 8 / dp_shard / 2, 2));
  };
  with(1, 0, 2, false);
  with(1, 0, 4, true);
  with(2, 0, 1, false);
  with(4, 3, 1, false);
  with(2, 3, 2, true);
}

TEST(Dropout, DrawsANewMaskInEveryStep) {
  Recipe r = small_recipe();
  r.model = {.family = config::Family::Gpt2,
             .layers = 1,
             .embed = 16,
             .ffn = 24,
             .heads = 4,
             .vocab = 257,
             .max_positions = 8,
             .dropout = 0.5};
  r.optimizer.kind = config::OptimizerKind::Sgd;
  r.optimizer.lr = 1e-30;  // nothing moves
  r = resolved(r, 2, 1);
  const data::Dataset dataset = tools::training_data(r, true);
  const LayoutRun one = run(r, dataset, {}, 2);
  Recipe still = r;
  still.model.dropout = 0;
  const LayoutRun none = run(still, dataset, {}, 2);
  EXPECT_NE(one.steps[0].result.loss, none.steps[0].result.loss);
  EXPECT_NE(one.steps[0].result.loss - none.steps[0].result.loss,
            one.steps[1].result.loss - none.steps[1].result.loss);
}

TEST(Init, WeightsAreBitEqualInEveryLayout) {
  Recipe one = small_recipe();
  one.model.qkv_bias = one.model.qk_norm = true;
  for (const base::DType dtype : {base::DType::F64, base::DType::F32, base::DType::BF16}) {
    one.precision = config::Precision::of(dtype);
    one = resolved(one, 8, 1);
    const data::Dataset dataset = tools::training_data(one, true);
    const auto reference = run(one, dataset, {}, 1).initial;
    for (const auto& [dp, shard, zero, tp] :
         std::vector<std::array<int64_t, 4>>{{2, 1, 0, 1}, {1, 4, 1, 2}, {2, 2, 3, 2}, {1, 1, 0, 4}}) {
      Recipe r = one;
      r.parallel.dp_replicate = dp;
      r.parallel.dp_shard = shard;
      r.parallel.zero = zero;
      r.parallel.tp = tp;
      r = resolved(r, 8 / dp / shard, 1);
      const auto initial = run(r, dataset, {}, 1).initial;
      ASSERT_EQ(initial.size(), reference.size());
      for (size_t t = 0; t < initial.size(); ++t)
        EXPECT_EQ(initial[t].values, reference[t].values) << initial[t].name;
    }
  }
}

// Every parameter has a random stream of its own: with one stream for all, matrices of one shape would be
// equal, and those of other shapes would begin alike.
TEST(Init, ParametersDrawDifferentNumbers) {
  const Recipe r = resolved(small_recipe(), 2, 1);
  const auto initial = run(r, tools::training_data(r, true), {}, 1).initial;
  std::vector<std::pair<double, std::string>> first;
  for (const tools::Tensor& t : initial)
    if (t.name.find("norm") == std::string::npos) {
      ASSERT_GE(t.values.size(), 2u);
      // The scale of the initial weights differs: the ratio of two numbers does not depend on it.
      first.emplace_back(t.values[1] / t.values[0], t.name);
    }
  ASSERT_GT(first.size(), 5u);
  for (size_t i = 0; i < first.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      EXPECT_NE(first[i].first, first[j].first) << first[i].second << " and " << first[j].second;
}

// Two optimizers in every block, and rates of their own within one of them: norms move by exactly lr in the
// first step of Lion, and the embedding moves by a tenth of what it moves otherwise.
TEST(Groups, EachHasItsOwnRateAndOptimizer) {
  for (const int64_t zero : {0, 1, 3}) {
    SCOPED_TRACE(zero);
    Recipe r = small_recipe();
    r.optimizer.weight_decay = 0;
    r.parallel.dp_shard = 2;
    r.parallel.zero = zero;
    r.parallel.tp = 2;
    const LayoutRun plain = run(resolved(r, 2, 2), tools::training_data(resolved(r, 2, 2), true));
    r.optimizer.groups = {
        {.match = "*norm*", .kind = config::OptimizerKind::Lion, .lr = 0.125, .weight_decay = {}},
        {.match = "embed.weight", .kind = {}, .lr = r.optimizer.lr / 10, .weight_decay = {}},
        // Of several groups that match, the first counts: not this one for norms and the embedding.
        {.match = "*", .kind = {}, .lr = r.optimizer.lr, .weight_decay = {}}};
    r = resolved(r, 2, 2);
    expect_equal(r);
    const LayoutRun groups = run(r, tools::training_data(r, true));
    for (size_t t = 0; t < plain.initial.size(); ++t) {
      const tools::Tensor& before = plain.initial[t];
      const bool norm = before.name.find("norm") != std::string::npos;
      for (size_t i = 0; i < before.values.size(); ++i) {
        const double moved = groups.steps[0].weights[t].values[i] - before.values[i],
                     usual = plain.steps[0].weights[t].values[i] - before.values[i];
        if (norm) {
          EXPECT_NEAR(std::abs(moved), 0.125, 1e-12) << before.name;
        } else {
          EXPECT_NEAR(moved, before.name == "embed.weight" ? usual / 10 : usual, 1e-12) << before.name;
        }
      }
    }
    for (const tools::Moments& m : groups.moments)
      EXPECT_LT(m.tensors.size(), plain.initial.size()) << m.name;
  }
}

// From 0 to 4 times weight_decay in 4 steps: once in the first, as without a ramp, twice in the second.
TEST(DecayRamp, WeightsDecayByTheFactorOfTheStep) {
  using Kind = config::OptimizerKind;
  for (const Kind kind : {Kind::AdamW, Kind::AdamW8bit, Kind::Sgd, Kind::Lion, Kind::Muon}) {
    SCOPED_TRACE(config::name_of(kind));
    Recipe r = small_recipe();
    r.optimizer.kind = kind;
    if (kind == Kind::AdamW8bit) r.optimizer.block_size = 8;
    r.optimizer.weight_decay = 0.1;
    r.run.steps = 4;
    r.parallel.dp_shard = 2;
    r.parallel.zero = 3;
    const Recipe constant = resolved(r, 2, 2);
    r.optimizer.weight_decay_ramp = {config::RampKind::Linear, 0, 4};
    const Recipe ramp = resolved(r, 2, 2);
    const data::Dataset dataset = tools::training_data(ramp, true);
    const LayoutRun a = run(constant, dataset), b = run(ramp, dataset);
    EXPECT_EQ(b.steps[0].result.decay_ratio, 1);
    EXPECT_EQ(b.steps[1].result.decay_ratio, 2);
    expect_same(a.steps[0].weights, b.steps[0].weights);
    for (size_t t = 0; t < a.initial.size(); ++t) {
      const double decay = a.settings.at(a.initial[t].name).weight_decay * a.steps[1].result.lr;
      for (size_t i = 0; i < a.initial[t].values.size(); ++i)
        EXPECT_NEAR(b.steps[1].weights[t].values[i] - a.steps[1].weights[t].values[i],
                    -decay * a.steps[0].weights[t].values[i], 1e-14)
            << a.initial[t].name;
    }
  }
}

TEST(Frozen, NoGradientNoStateNoMove) {
  for (const int64_t zero : {0, 2, 3}) {
    Recipe r = small_recipe();
    r.optimizer.groups = {frozen("embed.weight"), frozen("blocks.0.*")};
    r.parallel.dp_shard = 2;
    r.parallel.zero = zero;
    r.parallel.tp = 2;
    r = resolved(r, 2, 2);
    expect_equal(r);
    const LayoutRun layout = run(r, tools::training_data(r, true));
    for (const tools::Tensor& g : layout.steps[0].gradients) {
      EXPECT_NE(g.name, "embed.weight");
      EXPECT_FALSE(g.name.starts_with("blocks.0."));
    }
    for (size_t t = 0; t < layout.initial.size(); ++t) {
      const std::string& name = layout.initial[t].name;
      const bool kept = name == "embed.weight" || name.starts_with("blocks.0.");
      EXPECT_EQ(layout.steps.back().weights[t].values == layout.initial[t].values, kept) << name;
    }
  }
}

// Peak memory falls with the ZeRO stage, and with what is kept between forward and backward.
TEST(Memory, EveryStageOfZeroTakesLess) {
  std::vector<int64_t> peaks;
  for (const int64_t zero : {0, 1, 2, 3}) {
    Recipe r = small_recipe();
    r.model.layers = 4;
    r.parallel.dp_shard = 4;
    r.parallel.zero = zero;
    r = resolved(r, 1, 1);
    const LayoutRun layout = run(r, tools::training_data(r, true));
    for (const tools::Peak& p : layout.peaks) EXPECT_EQ(p.planned, p.measured);
    peaks.push_back(layout.peaks[0].planned);
  }
  for (size_t i = 1; i < peaks.size(); ++i) EXPECT_LT(peaks[i], peaks[i - 1]) << "zero " << i;
}

}  // namespace
}  // namespace quintet::tests
