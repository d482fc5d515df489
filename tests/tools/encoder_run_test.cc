// Whole runs of an encoder on masked tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "data/foreign_file.h"
#include "generate/source.h"
#include "tools/generate.h"
#include "tools/run_support.h"
#include "train/run_data.h"
#include "train/support.h"

namespace quintet {
namespace {

using test::Sets;
using test::SmallRun;
using test::user_error;
using test::operator+;

constexpr int32_t kMask = 256;  // of the byte tokenizer
const Sets kBert = {"model.family=\"bert\"", "model.kv_heads=4",     "model.max_positions=32",
                    "model.dropout=0.1",     "data.mlm.rate=0.3",    "precision.compute=\"f64\"",
                    "checkpoint.every=100",  "model.init=\"normal\""};

TEST(EncoderRun, LearnsAndContinuesExactlyInAnyLayout) {
  const SmallRun whole, changed;
  const Sets eval = {"eval.every=2", "eval.batches=1"};
  whole.train(kBert + eval);
  changed.train(kBert + eval, test::stopped_after(2));
  train::RunOptions options;
  options.allow = {"data.path"};  // the same data in another folder
  changed.train(kBert + eval +
                    Sets{"parallel.dp_shard=1", "parallel.tp=1", "parallel.sequence_parallel=false",
                         "parallel.zero=0", "parallel.cp=2", "parallel.pp=2"},
                options);
  test::expect_equal_losses(whole, changed);
  const auto a = test::read_metrics(whole.run_folder().metrics()),
             b = test::read_metrics(changed.run_folder().metrics());
  ASSERT_EQ(a.size(), 6U);
  for (const size_t step : {1U, 3U, 5U})
    EXPECT_NEAR(a[step].at("eval_loss").get<double>(), b[step].at("eval_loss").get<double>(), 1e-9);
  EXPECT_LT(a.back().at("loss").get<double>(), a.front().at("loss").get<double>());
  // What the model chose of 8 x 32 tokens, about 0.3 of them, and only that, is trained on.
  for (const auto& record : a) {
    EXPECT_GT(record.at("tokens").get<int64_t>(), 40);
    EXPECT_LT(record.at("tokens").get<int64_t>(), 120);
  }
  EXPECT_CONTAINS(user_error([&] { generate::open_source(whole.run_dir(), {}); }), "is an encoder");
  EXPECT_EQ(tools::sample_of(whole.recipe(kBert), 10), std::nullopt);
}

TEST(EncoderRun, BytesHaveAMaskOfTheirOwn) {
  const SmallRun run;
  EXPECT_EQ(run.recipe(kBert).model.vocab, kMask + 1);
  for (const Sets& more :
       {Sets{}, Sets{"data.stream=true"}, Sets{"data.packing=\"best-fit\"", "data.validation_fraction=0"}}) {
    const train::RunData data = train::load_data(run.recipe(kBert + more));
    std::vector<int32_t> ids(static_cast<size_t>(data.train.micro_tokens())), labels(ids.size());
    const int64_t valid = data.train.fill(0, 0, 0, {.ids = ids, .labels = labels});
    const auto masked = std::ranges::count(ids, kMask);
    EXPECT_GT(masked, 0);
    EXPECT_LT(masked, valid);  // some are kept or random
    EXPECT_EQ(valid, std::ranges::count_if(labels, [](int32_t label) { return label >= 0; }));
    for (size_t i = 0; i < ids.size(); ++i)
      EXPECT_TRUE(ids[i] != kMask || (labels[i] >= 0 && labels[i] < kMask));
  }
  EXPECT_CONTAINS(user_error([&] { train::load_data(run.recipe(kBert + Sets{"data.mlm.mask=\"a\""})); }),
                  "the byte tokenizer has no token \"a\"; its mask is id 256");
}

// What is masked differs from epoch to epoch, so a curriculum goes by the tokens of a sequence.
TEST(EncoderRun, ACurriculumGoesByLength) {
  const SmallRun run;
  std::string lines;
  for (int i = 0; i < 200; ++i) lines += "{\"text\": \"" + std::string(1 + (7 * i) % 29, 'a') + "\"}\n";
  base::write_file_atomically(run / "lines.jsonl", lines);
  const train::RunData data = train::load_data(run.recipe(
      kBert + Sets{"data.path=\"" + (run / "lines.jsonl").string() + "\"", "data.packing=\"best-fit\"",
                   "data.validation_fraction=0", "data.curriculum.by=\"length\""}));
  int64_t before = 0;
  std::set<int64_t> lengths;
  for (int64_t g = 0; g < data.train.mixture().samples(); ++g) {
    const int64_t length = data.train.mixture().dataset(0).inputs(data.train.mixture().at(g)->sample);
    EXPECT_GE(length, before);
    lengths.insert(before = length);
  }
  EXPECT_GT(lengths.size(), 1U);
}

TEST(EncoderRun, ATokenizerNeedsTheMask) {
  const SmallRun run;
  const auto with = [&](const std::string& tokens) {
    const base::Path file = run / "tokenizer.json";
    base::write_file_atomically(
        file, R"({"added_tokens": [)" + tokens + R"(], "pre_tokenizer": {"type": "Whitespace"}, "model":
  {"type": "WordLevel", "unk_token": "x", "vocab": {"x": 0, "the": 1, "rank": 2, "[MASK]": 3, "[SEP]": 4}}})");
    return run.recipe(kBert + Sets{"data.tokenizer=\"" + file.string() + "\"", "model.vocab=16"});
  };
  const auto special = [](int id, const char* name) {
    return R"({"id": )" + std::to_string(id) + R"(, "content": ")" + name +
           R"(", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true})";
  };
  const train::RunData data = train::load_data(with(special(3, "[MASK]") + ", " + special(4, "[SEP]")));
  std::vector<int32_t> ids(static_cast<size_t>(data.train.micro_tokens())), labels(ids.size());
  data.train.fill(0, 0, 0, {.ids = ids, .labels = labels});
  EXPECT_GT(std::ranges::count(ids, 3), 0);
  EXPECT_EQ(std::ranges::count(labels, 4), 0);
  config::Recipe other = with(special(4, "[SEP]"));
  other.data.mlm.mask = "<mask>";
  EXPECT_CONTAINS(user_error([&] { train::load_data(other); }), "has no token \"<mask>\"");
}

TEST(EncoderRun, AMaskFileIsRefused) {
  const SmallRun run;
  data::MegatronWriter writer(run / "p", 256);
  writer.add_document(std::vector<int32_t>(500, 7), std::vector<uint8_t>(500, 1));
  writer.finish();
  EXPECT_CONTAINS(user_error([&] {
                    train::load_data(run.recipe(kBert + Sets{"data.path=\"" + (run / "p").string() + "\""}));
                  }),
                  "has a .mask");
}

}  // namespace
}  // namespace quintet
