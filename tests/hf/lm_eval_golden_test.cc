// What lm-evaluation-harness computed (lm_eval_test.py --write-golden) for a tiny model, questions and texts.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/folders.h"
#include "tools/generate.h"

namespace quintet {
namespace {

TEST(LmEvalGolden, ResultsAreThoseOfLmEval) {
  const base::Path folder = base::Path(test::source_dir()) / "tests/hf/lm_eval";
  const nlohmann::json expected = nlohmann::json::parse(base::read_file(folder / "expected.json"));
  const auto results = [&](const char* file) {
    return nlohmann::json::parse(
        tools::to_json(tools::evaluate_file(folder, folder / file, {.max_length = expected.at("max_length")},
                                            {.dtype = base::DType::F32, .device = config::DeviceKind::Cpu})));
  };
  const nlohmann::json choices = results("questions.jsonl").at("choices"),
                       text = results("texts.jsonl").at("text");
  for (const char* name : {"acc", "acc_norm"})
    EXPECT_EQ(choices.at(name).get<double>(), expected.at(name).get<double>()) << name;
  for (const char* name : {"word_perplexity", "byte_perplexity", "bits_per_byte"}) {
    const double theirs = expected.at(name);
    EXPECT_NEAR(text.at(name).get<double>(), theirs, 2e-5 * theirs) << name;
  }
}

}  // namespace
}  // namespace quintet
