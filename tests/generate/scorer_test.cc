#include "generate/scorer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "comm/local.h"
#include "generate/generator.h"

namespace quintet::generate {
namespace {

Source tiny_source(int64_t tp) {
  Source source;
  source.recipe.model = {.family = config::Family::Llama,
                         .layers = 2,
                         .embed = 32,
                         .ffn = 48,
                         .heads = 4,
                         .kv_heads = 2,
                         .head_dim = 8,
                         .vocab = 61,
                         .rope_theta = 1e4};
  source.recipe.model.logit_soft_cap = 5;
  source.recipe.parallel.tp = tp;
  source.recipe.batch = {.global = 1, .micro = 1, .accumulation = 1};
  source.recipe.precision = config::Precision::of(base::DType::F64);
  source.recipe.data.seq_len = 1;
  source.recipe.loss.chunk = 5;  // rows whose logits exist at once
  return source;
}

// Every token of a text that was generated has the log-probability that its logits gave it, whatever it is
// packed with and on however many ranks.
TEST(Scorer, PackedTextsHaveTheProbabilitiesOfGeneration) {
  const std::vector<int32_t> prompt = {3, 14, 15, 9, 26};
  std::vector<int32_t> text = prompt;
  std::vector<double> expected;
  const Source one = tiny_source(1);
  std::vector<Request> requests = {{prompt, 12}};
  GeneratorOptions options;
  options.sampling = {.temperature = 1, .key = 3};
  comm::run_local_world(1, [&](comm::World& world) {
    Generator generator(one.recipe, world, serving_for(one.recipe, requests, options), options);
    generator.run(requests, [&](size_t, int32_t id) {
      const std::vector<double> logits = generator.logits(0);
      double sum = 0;
      for (const double l : logits) sum += std::exp(l);
      expected.push_back(logits[static_cast<size_t>(id)] - std::log(sum));
      text.push_back(id);
      return false;
    });
  });
  const std::vector<std::vector<int32_t>> texts = {{1, 2, 3, 4, 5, 6}, text, {7}, text, {9, 8, 7}};
  for (const int64_t tp : {1, 2})
    for (const int64_t rows : {1, 24, 2048}) {
      const Source source = tiny_source(tp);
      std::vector<Scored> scored;
      comm::run_local_world(static_cast<int>(tp), [&](comm::World& world) {
        const std::vector<Scored> mine = score(source, world, texts, {.pack_rows = rows});
        if (world.rank() == base::RankId(0)) scored = mine;
      });
      ASSERT_EQ(scored.size(), texts.size());
      EXPECT_TRUE(scored[2].log_probs.empty());
      for (const size_t t : {1, 3}) {
        ASSERT_EQ(scored[t].log_probs.size(), text.size() - 1);
        for (size_t i = 0; i < expected.size(); ++i)
          EXPECT_NEAR(scored[t].log_probs[prompt.size() - 1 + i], expected[i], 1e-10) << rows << " " << tp;
      }
    }
}

}  // namespace
}  // namespace quintet::generate
