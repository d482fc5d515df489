// Conversations to prepared data, and from there to the labels that a run trains on.
#include "tools/prepare_chat.h"

#include "base/error.h"
#include "chat/tiny_tokenizer.h"
#include "data/dataset.h"
#include "data/foreign_file.h"
#include "data/open_corpus.h"
#include "tools/show_data.h"
#include "train/support.h"

namespace quintet::tools {
namespace {

class PrepareChat : public testing::Test {
 protected:
  PrepareChat() { test::write_tiny_tokenizer(folder_ / "tokenizer"); }

  PrepareChatOptions options(const std::string& lines) {
    base::write_file_atomically(folder_ / "chat.jsonl", lines);
    PrepareChatOptions o;
    o.source.inputs = {(folder_ / "chat.jsonl").string()};
    o.source.tokenizer = (folder_ / "tokenizer").string();
    o.out = folder_ / "out";
    o.overwrite = true;
    o.threads = 2;
    return o;
  }
  data::Corpus corpus() { return *data::open_foreign_file(folder_ / "out" / "tokens", 262); }
  static std::string error_of(const PrepareChatOptions& o) {
    try {
      prepare_chat(o);
    } catch (const base::UserError& error) {
      return error.what();
    }
    return "";
  }
  static std::string line(const std::string& question, const std::string& answer) {
    return R"({"messages": [{"role": "user", "content": ")" + question +
           R"("}, {"role": "assistant", "content": ")" + answer + R"("}]})" + "\n";
  }
  test::TempFolder folder_;
};

TEST_F(PrepareChat, WritesTokensFlagsAndAManifest) {
  const PreparedChat prepared = prepare_chat(options(line("q", "One") + "\n" + line("r", "Two")));
  EXPECT_EQ(prepared.documents, 2);
  EXPECT_EQ(prepared.trained, 8);  // three letters and <|im_end|>, twice
  const auto shown = show_data({.inputs = {(folder_ / "out").string()}}, 5);
  ASSERT_EQ(shown.size(), 2u);
  ASSERT_EQ(shown[1].runs.size(), 3u);
  EXPECT_EQ(shown[1].runs[0].text, "<|im_start|>user\nr<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_TRUE(shown[1].runs[1].trained);
  EXPECT_EQ(shown[1].runs[1].text, "Two<|im_end|>");
  const auto manifest = test::read_json(folder_ / "out" / "manifest.json");
  EXPECT_EQ(manifest["kind"], "examples");
  EXPECT_EQ(manifest["trained_tokens"], 8);
}

// Rejected answers and prompts are prepared for other losses; a run on their tokens would learn them.
TEST_F(PrepareChat, PairsAndPromptsAreRefusedByRuns) {
  const auto refused = [&](const std::string& lines) {
    prepare_chat(options(lines));
    const auto tokenizer = tokenizer::load_tokenizer((folder_ / "tokenizer").string());
    return test::user_error([&] { data::open_corpus({folder_ / "out"}, *tokenizer, 1000); });
  };
  EXPECT_CONTAINS(refused(R"({"prompt": "q", "chosen": "good", "rejected": "bad"})"), "rejected answers");
  EXPECT_CONTAINS(refused(R"({"prompt": "q", "answer": 42})"), "prompts without answers");
  const auto shown = show_data({.inputs = {(folder_ / "out").string()}}, 1);
  ASSERT_EQ(shown.size(), 1u);
  EXPECT_EQ(shown[0].trained, std::vector<uint8_t>{0});
}

// A completion as text ends with the end-of-text token, which only the tokenizer's configuration names.
TEST_F(PrepareChat, ACompletionNeedsAnEnd) {
  PrepareChatOptions o = options(R"({"prompt": "q", "completion": "a"})");
  prepare_chat(o);
  base::remove_file(folder_ / "tokenizer" / "tokenizer_config.json");
  EXPECT_CONTAINS(error_of(o), "no token ends the completion: tokenizer_config.json");
  o.source.mask.end_of_turn = "a";
  EXPECT_EQ(error_of(o), "");
}

TEST_F(PrepareChat, DoesNotDependOnThreads) {
  std::string lines;
  for (int i = 0; i < 300; ++i)
    lines += line("q" + std::to_string(i), std::string(static_cast<size_t>(i % 7) + 1, 'x'));
  PrepareChatOptions o = options(lines);
  prepare_chat(o);
  const std::string bin = base::read_file(o.out / "tokens.bin"),
                    mask = base::read_file(o.out / "tokens.mask");
  o.threads = 1;
  prepare_chat(o);
  EXPECT_EQ(base::read_file(o.out / "tokens.bin"), bin);
  EXPECT_EQ(base::read_file(o.out / "tokens.mask"), mask);
}

TEST_F(PrepareChat, KeepsPairsTogether) {
  const std::string pair = R"({"prompt": "Q:", "chosen": "good", "rejected": "worse"})";
  const std::string large = R"({"prompt": "Q:", "chosen": "x", "rejected": ")" + std::string(99, 'y') + "\"}";
  PrepareChatOptions o = options(pair + "\n" + large + "\n" + pair + "\n");
  o.max_tokens = 50;
  const PreparedChat prepared = prepare_chat(o);
  EXPECT_EQ(prepared.kind, "pairs");
  EXPECT_EQ(prepared.documents, 4);
  EXPECT_EQ(prepared.too_long, 1);
  EXPECT_EQ(test::read_json(folder_ / "out" / "manifest.json")["kind"], "pairs");
  const auto shown = show_data({.inputs = {(folder_ / "out").string()}}, 2);
  EXPECT_EQ(shown[0].runs.back().text, "good</s>");
  EXPECT_EQ(shown[1].runs.back().text, "worse</s>");
}

TEST_F(PrepareChat, KeepsTheColumnsOfPrompts) {
  prepare_chat(options(R"({"prompt": "2+2=", "answer": 4})"
                       "\n"
                       R"({"prompt": "1+2=", "answer": 3})"
                       "\n"));
  EXPECT_EQ(base::read_file(folder_ / "out" / "columns.jsonl"), "{\"answer\": 4}\n{\"answer\": 3}\n");
  EXPECT_EQ(corpus().trained().size(), 8u);
  EXPECT_EQ(std::ranges::count(corpus().trained(), 0), 8) << "nothing is trained";
}

TEST_F(PrepareChat, SplitsTurnsWhereATemplateRewritesThem) {
  PrepareChatOptions o = options(
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "One"},
          {"role": "user", "content": "b"}, {"role": "assistant", "content": "Two"}]})");
  // One line of JSON: the test's is spread for the reader.
  std::string text = base::read_file(folder_ / "chat.jsonl");
  std::erase(text, '\n');
  base::write_file_atomically(folder_ / "chat.jsonl", text);
  o.split_turns = true;
  EXPECT_EQ(prepare_chat(o).documents, 2);
  const auto shown = show_data({.inputs = {(folder_ / "out").string()}}, 2);
  EXPECT_EQ(shown[0].runs[1].text, "One<|im_end|>");
  EXPECT_EQ(shown[1].runs[1].text, "Two<|im_end|>");
}

TEST_F(PrepareChat, BadExamplesAreReportedWithFileAndLine) {
  PrepareChatOptions o = options(line("q", "a") + "{broken\n" + R"({"messages": [{"role": "user"}]})" + "\n");
  EXPECT_NE(error_of(o).find("chat.jsonl:2: not valid JSON"), std::string::npos) << error_of(o);
  EXPECT_FALSE(base::file_exists(o.out / "tokens.bin"));
  o.skip_damaged = true;
  const PreparedChat prepared = prepare_chat(o);
  EXPECT_EQ(prepared.damaged, 2);
  ASSERT_EQ(prepared.first_damage.size(), 2u);
  EXPECT_NE(prepared.first_damage[1].find("chat.jsonl:3: message 1 (user) has neither"), std::string::npos);

  PrepareChatOptions none = options(
      R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "train": false}]})");
  EXPECT_NE(error_of(none).find("chat.jsonl:1: no token would be trained"), std::string::npos);
  none.skip_damaged = true;
  EXPECT_NE(error_of(none).find("no example is left"), std::string::npos);

  const PrepareChatOptions mixed = options(line("q", "a") + R"({"prompt": "x", "completion": "y"})" + "\n");
  EXPECT_NE(error_of(mixed).find("chat.jsonl:2: no field \"messages\""), std::string::npos)
      << error_of(mixed);
}

// A program calls itself once per level to copy or print a value: such a line must not end the process.
TEST_F(PrepareChat, DeeplyNestedLinesAreDamaged) {
  const std::string deep = std::string(300000, '[') + std::string(300000, ']');
  const std::string ends = R"(, {"role": "assistant", "content": "x"}])";
  for (const std::string& bad :
       {R"({"messages": [{"role": "user", "content": )" + deep + "}" + ends + "}",
        R"({"messages": [{"role": "user", "content": "q"})" + ends + R"(, "tools": )" + deep + "}",
        R"({"messages": [{"role": "user", "content": "q"})" + ends + R"(, "tools": ")" + deep + "\"}",
        R"({"prompt": "q", "answer": )" + deep + "}"})
    EXPECT_CONTAINS(error_of(options(bad)), "JSON that nests deeper than 256 levels");
  // Arguments that are no object stay text.
  EXPECT_EQ(error_of(options(
                R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "x", )"
                R"("tool_calls": [{"name": "f", "arguments": ")" + deep + "\"}]}]}")),
            "");
}

TEST_F(PrepareChat, RefusesATemplateThatNeverTrainsTheEndOfATurn) {
  test::write_tiny_tokenizer(
      folder_ / "tokenizer",
      "{% for m in messages %}{{ m.role }}: {% generation %}{{ m.content }}{% endgeneration %}"
      "<|im_end|>{% endfor %}");
  PrepareChatOptions o = options(line("q", "a."));
  EXPECT_NE(error_of(o).find("never trains a token that ends a turn"), std::string::npos) << error_of(o);
  EXPECT_FALSE(base::file_exists(o.out / "tokens.bin"));
  o.source.mask.end_of_turn = ".";
  EXPECT_EQ(error_of(o), "");
}

// The whole way: conversations, prepared data, the batches of a run.
TEST_F(PrepareChat, OnlyTokensOfTheAssistantReachTheLoss) {
  std::string lines;
  for (int i = 0; i < 60; ++i)
    lines += line("question " + std::to_string(i), "answer " + std::to_string(i * i));
  const PreparedChat prepared = prepare_chat(options(lines));
  const data::Corpus corpus = this->corpus();
  const int64_t seq_len = 32;
  const int64_t samples = (corpus.tokens() - 1) / seq_len;
  const data::Dataset dataset(corpus, seq_len, true, 0, samples);
  int64_t labels = 0;
  for (int64_t i = 0; i < samples; ++i) {
    const data::Sample sample = dataset.get(i);
    for (int64_t t = 0; t < seq_len; ++t) {
      const auto at = static_cast<size_t>(i * seq_len + t + 1);
      const bool first = std::binary_search(corpus.offsets().begin(), corpus.offsets().end(), at);
      const bool expected = corpus.trained()[at] != 0 && !first;
      EXPECT_EQ(sample.labels[static_cast<size_t>(t)] != data::kIgnored, expected) << i << " " << t;
      labels += expected;
    }
  }
  EXPECT_GT(labels, 400);
  EXPECT_LT(labels, prepared.tokens / 2);

  const test::SmallRun run;
  const auto trained = run.train({"data.path=" + (folder_ / "out" / "tokens").string(),
                                  "data.tokenizer=" + (folder_ / "tokenizer").string(),
                                  "data.validation_fraction=0", "batch.global=" + std::to_string(samples),
                                  "batch.micro=1", "run.steps=1", "parallel.dp_shard=1", "parallel.zero=0",
                                  "parallel.tp=1", "parallel.sequence_parallel=false"});
  const auto metrics = test::read_metrics(run.run_dir() / "metrics.jsonl");
  bool found = false;
  for (const auto& record : metrics)
    if (record.contains("tokens")) {
      EXPECT_EQ(record["tokens"], labels);  // the divisor of the loss
      found = true;
    }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace quintet::tools
