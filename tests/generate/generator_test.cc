#include "generate/generator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

#include "base/error.h"
#include "base/philox.h"
#include "comm/local.h"
#include "config/presets.h"
#include "graph/cache_ops.h"
#include "program/allocate.h"
#include "train/element.h"

namespace quintet::generate {
namespace {

using base::DType;
using graph::InputKind;

config::Model llama() {
  return {.family = config::Family::Llama,
          .layers = 2,
          .embed = 32,
          .ffn = 48,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 8,
          .vocab = 61,
          .rope_theta = 1e4};
}

config::Recipe recipe_of(config::Model model, DType dtype = DType::F64, int64_t tp = 1) {
  config::Recipe recipe;
  recipe.model = std::move(model);
  recipe.parallel.tp = tp;
  recipe.batch = {.global = 1, .micro = 1, .accumulation = 1};
  recipe.precision = config::Precision::of(dtype);
  recipe.data.seq_len = 64;
  return recipe;
}

// Every family that differs in attention: windows, soft caps, partial rotation, latents, experts, learned
// positions, norms of heads.
std::vector<std::pair<std::string, config::Model>> families() {
  std::vector<std::pair<std::string, config::Model>> list = {{"llama", llama()}};
  config::Model m = llama();
  m.sliding_window = 5;
  m.attention_soft_cap = 3;
  m.logit_soft_cap = 4;
  list.emplace_back("window and soft caps", m);
  m = llama();
  m.rotary_dim = 4;
  m.qk_norm = true;
  m.qkv_bias = true;
  list.emplace_back("partial rotary, norms, biases", m);
  m = llama();
  m.kv_heads = 4;
  m.mla.q_rank = 12, m.mla.kv_rank = 8, m.mla.nope_dim = 8, m.mla.rope_dim = 4, m.mla.v_dim = 6;
  list.emplace_back("latent attention", m);
  m = llama();
  m.moe.experts = 4;
  m.moe.top_k = 2;
  m.moe.ffn = 16;
  list.emplace_back("experts", m);
  m = llama();
  m.sliding_window = 5;
  m.full_attention_every = 2;
  m.attention_sinks = true;
  m.qkv_bias = m.out_bias = true;
  list.emplace_back("sinks", m);
  m = llama();
  m.attention_chunk = 4;
  m.no_rope_every = 2;
  m.position_scale = 0.4, m.position_floor = 3;
  m.qk_unit_norm = true;
  list.emplace_back("chunks", m);
  m = llama();
  m.family = config::Family::Gpt2;
  m.kv_heads = 4;
  m.max_positions = 40;
  m.tied = true;
  list.emplace_back("gpt2", m);
  m.family = config::Family::Neox;
  m.max_positions = 0;
  m.tied = false;
  m.rotary_dim = 4;
  m.parallel_blocks = true;
  list.emplace_back("neox", m);
  return list;
}

std::vector<int32_t> prompt_of(int64_t length, int64_t vocab, uint64_t seed) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < length; ++i)
    ids.push_back(
        static_cast<int32_t>(base::philox(seed, static_cast<uint64_t>(i))[0] % static_cast<uint32_t>(vocab)));
  return ids;
}

// The logits of every row of a text, by one forward pass without a cache on one rank.
std::vector<std::vector<double>> whole_logits(config::Recipe recipe, const std::vector<int32_t>& ids) {
  const int64_t rows = static_cast<int64_t>(ids.size());
  recipe.parallel = {};
  recipe.data.seq_len = rows;
  std::vector<std::vector<double>> out(ids.size(),
                                       std::vector<double>(static_cast<size_t>(recipe.model.vocab)));
  comm::run_local_world(1, [&](comm::World& world) {
    train::Rank rank(recipe, world, {.infer = true});
    rank.executor().run(rank.compiled().step, [&](int, const auto& inputs) {
      for (const auto& [spec, data] : inputs)
        for (int64_t i = 0; i < rows; ++i)
          data[i] = spec.kind == InputKind::Ids         ? ids[static_cast<size_t>(i)]
                    : spec.kind == InputKind::Positions ? static_cast<int32_t>(i)
                    : spec.kind == InputKind::Labels    ? -1
                                                        : 0;
    });
    const DType dtype = recipe.precision.compute;
    const exec::HostBytes bytes = rank.executor().read(
        {rank.compiled().program.result, 0, rows * recipe.model.vocab * base::size_of(dtype)});
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t v = 0; v < recipe.model.vocab; ++v)
        out[static_cast<size_t>(i)][static_cast<size_t>(v)] =
            train::read_element(bytes.data(), dtype, i * recipe.model.vocab + v);
  });
  return out;
}

struct Text {
  std::vector<int32_t> ids;                 // new ones
  std::vector<std::vector<double>> logits;  // of which each was chosen, with `keep_logits`
  int64_t planned = 0, measured = 0, peak = 0;
};

// Runs requests on tp ranks; all of them must choose the same tokens.
std::vector<Text> generated(const config::Recipe& recipe, std::vector<Request> requests,
                            GeneratorOptions options, bool keep_logits = false, bool measure = false) {
  number_requests(requests);
  std::vector<Text> texts(requests.size());
  std::mutex mutex;
  std::vector<std::vector<int32_t>> first;
  comm::run_local_world(static_cast<int>(recipe.parallel.tp), [&](comm::World& world) {
    Generator generator(recipe, world, serving_for(recipe, requests, options), options);
    std::vector<Text> mine(requests.size());
    for (int round = 0; round < (measure ? 2 : 1); ++round) {
      if (measure) generator.rank().executor().begin_measuring(round);
      mine.assign(requests.size(), {});
      generator.run(requests, [&](size_t r, int32_t id) {
        mine[r].ids.push_back(id);
        // Only with one request the row is known.
        if (keep_logits) mine[r].logits.push_back(generator.logits(0));
        return false;
      });
      if (measure) generator.rank().executor().end_measuring(round);
    }
    mine[0].planned = generator.rank().compiled().program.arena_bytes;
    mine[0].measured = generator.rank().executor().measured_peak_bytes();
    mine[0].peak = program::peak_of(generator.rank().compiled().program).live_bytes;
    const std::lock_guard lock(mutex);
    std::vector<std::vector<int32_t>> ids;
    for (const Text& t : mine) ids.push_back(t.ids);
    if (first.empty()) first = ids;
    EXPECT_EQ(first, ids) << "rank " << world.rank().value;
    if (world.rank() == base::RankId(0)) texts = std::move(mine);
  });
  return texts;
}

void expect_near(const std::vector<double>& a, const std::vector<double>& b, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << what << ", token " << i;
}

// Prefill plus Decode equal the whole forward, for every family, on one rank and on two. Pages of 4 rows are
// smaller than the prompt and a window; freed bytes are poisoned.
TEST(Generator, PrefillAndDecodeEqualTheWholeForward) {
  for (const auto& [name, model] : families())
    for (const int64_t tp : {1, 2}) {
      SCOPED_TRACE(name + ", tp " + std::to_string(tp));
      const config::Recipe recipe = recipe_of(model, DType::F64, tp);
      const std::vector<int32_t> prompt = prompt_of(11, model.vocab, 3);
      GeneratorOptions options{.page_rows = 4, .poison = true};
      options.sampling = {.temperature = 1.0, .key = 5};
      const Text text = generated(recipe, {{prompt, 13}}, options, true)[0];
      ASSERT_EQ(text.ids.size(), 13u);
      std::vector<int32_t> all = prompt;
      all.insert(all.end(), text.ids.begin(), text.ids.end() - 1);
      const auto whole = whole_logits(recipe, all);
      for (size_t i = 0; i < text.logits.size(); ++i)
        expect_near(text.logits[i], whole[prompt.size() - 1 + i], 1e-10, "row " + std::to_string(i));
    }
}

// Four tensor-parallel ranks for two KV heads: each holds half the queries of one.
TEST(Generator, MoreRanksThanKvHeads) {
  const config::Recipe recipe = recipe_of(llama(), DType::F64, 4);
  const std::vector<int32_t> prompt = prompt_of(9, 61, 1);
  GeneratorOptions options{.page_rows = 8};
  const Text text = generated(recipe, {{prompt, 6}}, options, true)[0];
  std::vector<int32_t> all = prompt;
  all.insert(all.end(), text.ids.begin(), text.ids.end() - 1);
  const auto whole = whole_logits(recipe, all);
  for (size_t i = 0; i < text.logits.size(); ++i)
    expect_near(text.logits[i], whole[prompt.size() - 1 + i], 1e-10, "row " + std::to_string(i));
}

// A text is the same alone, in a batch, in a batch with too few sequences for all, and whatever the order.
TEST(Generator, TextDoesNotDependOnTheBatch) {
  for (const DType dtype : {DType::F32, DType::BF16}) {
    config::Model model = llama();
    model.embed = 96;
    model.ffn = 160;
    const config::Recipe recipe = recipe_of(model, dtype);
    GeneratorOptions options{.page_rows = 8};
    options.sampling = {.temperature = 1.5, .top_k = 40, .top_p = 0.95, .key = 17};
    std::vector<Request> requests;
    for (int64_t i = 0; i < 7; ++i)
      requests.push_back({prompt_of(3 + 5 * i, 61, static_cast<uint64_t>(i)), 9 + i});
    const std::vector<Text> together = generated(recipe, requests, options);
    options.batch = 3;
    const std::vector<Text> few = generated(recipe, requests, options);
    std::vector<Request> reversed(requests.rbegin(), requests.rend());
    const std::vector<Text> backwards = generated(recipe, reversed, options);
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(together[i].ids, few[i].ids) << i;
      EXPECT_EQ(together[i].ids, backwards[requests.size() - 1 - i].ids) << i;
      EXPECT_EQ(together[i].ids, generated(recipe, {requests[i]}, options)[0].ids) << i;
    }
  }
}

TEST(Generator, RepeatedPromptsGetNumbersOfTheirOwn) {
  std::vector<Request> requests = {{{1, 2}, 4}, {{1, 2}, 4}, {{2, 1}, 4}};
  number_requests(requests);
  EXPECT_NE(requests[0].number, requests[1].number);
  EXPECT_NE(requests[0].number, requests[2].number);
  std::vector<Request> other = {{{2, 1}, 4}, {{1, 2}, 4}};
  number_requests(other);
  EXPECT_EQ(other[0].number, requests[2].number);
  EXPECT_EQ(other[1].number, requests[0].number);
}

// The plan is exact, the cache included; and entries share the memory of their activations.
TEST(Generator, PlannedMemoryIsTouchedMemory) {
  for (const auto& [name, model] : families()) {
    if (model.moe.experts > 0) continue;  // rows of experts vary: the plan is an upper bound
    SCOPED_TRACE(name);
    GeneratorOptions options{.page_rows = 4};
    std::vector<Request> requests;
    for (int64_t i = 0; i < 5; ++i)
      requests.push_back({prompt_of(16, model.vocab, static_cast<uint64_t>(i)), 8});
    const Text text = generated(recipe_of(model, DType::F32), requests, options, false, true)[0];
    EXPECT_EQ(text.planned, text.measured);
  }
}

TEST(Generator, CacheHasThePagesOfTheLongestRequests) {
  const config::Recipe recipe = recipe_of(llama(), DType::F32);
  std::vector<Request> requests = {
      {prompt_of(10, 61, 1), 7}, {prompt_of(3, 61, 2), 2}, {prompt_of(20, 61, 3), 1}};
  const GeneratorOptions options{.batch = 2, .page_rows = 4};
  const compiler::Serving serving = serving_for(recipe, requests, options);
  EXPECT_EQ(serving.cache.pages_per_sequence, 5);  // 20 positions
  EXPECT_EQ(serving.cache.pages, 5 + 4);           // 16 positions are stored of 17 tokens
  EXPECT_EQ(serving.cache.sequences, 2);
  EXPECT_GE(serving.find(graph::Mode::Prefill, 16), 0);
  EXPECT_GE(serving.find(graph::Mode::Prefill, 32), 0);
  EXPECT_GE(serving.find(graph::Mode::Decode, 2), 0);
  EXPECT_EQ(serving.find(graph::Mode::Decode, 3), -1);
  comm::run_local_world(1, [&](comm::World& world) {
    Generator generator(recipe, world, serving, options);
    // 2 layers of K and V, 9 pages of 4 rows, 2 heads of 8 floats
    EXPECT_EQ(generator.cache_bytes(), 2 * 2 * 9 * 4 * 2 * 8 * 4);
  });
}

TEST(Generator, RefusesMoreThanLearnedPositions) {
  config::Model model = families()[7].second;
  ASSERT_EQ(model.max_positions, 40);
  const std::vector<Request> fits = {{prompt_of(30, 61, 1), 11}}, too_long = {{prompt_of(30, 61, 1), 12}};
  EXPECT_NO_THROW(serving_for(recipe_of(model), fits, {}));
  try {
    serving_for(recipe_of(model), too_long, {});
    FAIL();
  } catch (const base::UserError& e) {
    EXPECT_NE(std::string(e.what()).find("at most 11 new tokens"), std::string::npos) << e.what();
  }
}

// A repetition penalty so high that no token occurs twice, until all have.
TEST(Generator, RepetitionPenaltySeesPromptAndText) {
  config::Model model = llama();
  const std::vector<int32_t> prompt = prompt_of(9, model.vocab, 8);
  GeneratorOptions options{.page_rows = 4};
  options.sampling = {.repetition_penalty = 1e9};
  const Text text = generated(recipe_of(model), {{prompt, 20}}, options)[0];
  std::vector<int32_t> all = prompt;
  for (const int32_t id : text.ids) {
    // Logits of either sign: penalised ones are 0 or very negative, so the largest unseen one wins unless all
    // unseen ones are negative.
    EXPECT_EQ(std::count(all.begin(), all.end(), id), 0) << id;
    all.push_back(id);
  }
}

}  // namespace
}  // namespace quintet::generate
