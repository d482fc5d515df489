// Ids and texts against those of the `tokenizers` package (tests/golden/make_tokenizers.py), and of the
// `sentencepiece` package (make_sentencepiece.py).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <span>

#include "base/file.h"
#include "support/folders.h"
#include "tokenizer/tokenizer.h"

namespace quintet::tokenizer {
namespace {

const std::string kFolder = test::source_dir() + "/tests/golden/tokenizers/";

class GoldenTokenizer : public testing::TestWithParam<const char*> {};

TEST_P(GoldenTokenizer, GivesTheIdsOfThePackages) {
  const auto texts = nlohmann::json::parse(base::read_file(kFolder + "texts.json"));
  const auto expected = nlohmann::json::parse(base::read_file(kFolder + GetParam() + ".expected.json"));
  const bool is_model = std::string_view(GetParam()).starts_with("sp_");
  const auto tokenizer = load_tokenizer(kFolder + GetParam() + (is_model ? ".model" : ".json"));
  ASSERT_EQ(texts.size(), expected["ids"].size());
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto text = texts[i].get<std::string>();
    const auto ids = expected["ids"][i].get<std::vector<int32_t>>();
    for (const char* pass : {"first", "with its words known"}) {
      std::vector<int32_t> ours;
      tokenizer->encode(text, ours, true);
      EXPECT_EQ(ours, ids) << pass << ", text " << i << ": " << text;
    }
    const auto& otherwise = expected["decoded_otherwise"];
    const auto key = std::to_string(i);
    // SentencePiece prints unknown pieces as such.
    EXPECT_EQ(is_model ? tokenizer->decode(std::span(ids).subspan(1)) : tokenizer->decode(ids, true),
              otherwise.contains(key) ? otherwise[key].get<std::string>() : text);
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, GoldenTokenizer,
                         testing::Values("gpt2", "llama3", "qwen2", "o200k", "tekken", "other", "llama2",
                                         "unigram", "wordpiece", "suffix", "prefix", "sp_unigram", "sp_bpe",
                                         "sp_plain"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace quintet::tokenizer
