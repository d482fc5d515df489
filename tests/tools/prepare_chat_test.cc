// Conversations to prepared data, and from there to the labels that a run trains on.
#include "base/checksum.h"
#include "base/error.h"
#include "chat/tiny_tokenizer.h"
#include "data/dataset.h"
#include "data/foreign_file.h"
#include "data/npy_file.h"
#include "data/open_corpus.h"
#include "prepare/prepare.h"
#include "support/memory_peak.h"
#include "tools/show_data.h"
#include "train/support.h"

namespace quintet::tools {
namespace {

using prepare::Options;

// What the manifest says.
struct PreparedChat {
  std::string kind;
  int64_t documents = 0, tokens = 0, trained = 0, damaged = 0, too_long = 0;
  std::vector<std::string> first_damage;
};

class PrepareChat : public testing::Test {
 protected:
  static PreparedChat prepare_chat(const Options& o) {
    const auto m = prepare::prepare(o).manifest;
    return {m.at("kind"),
            m.at("documents"),
            m.at("tokens"),
            m.at("trained_tokens"),
            m.at("dropped").at("damaged"),
            m.at("dropped").at("too_long"),
            m.at("damage")};
  }

  PrepareChat() { test::write_tiny_tokenizer(folder_ / "tokenizer"); }

  Options options(const std::string& lines) {
    base::write_file_atomically(folder_ / "chat.jsonl", lines);
    Options o;
    o.chat.emplace();
    o.inputs = {(folder_ / "chat.jsonl").string()};
    o.tokenizer = (folder_ / "tokenizer").string();
    o.out = folder_ / "out";
    o.overwrite = true;
    o.threads = 2;
    return o;
  }
  data::Corpus corpus() { return *data::open_foreign_file(folder_ / "out" / "tokens", 262); }
  static std::string error_of(const Options& o) {
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
  Options o = options(R"({"prompt": "q", "completion": "a"})");
  prepare_chat(o);
  base::remove_file(folder_ / "tokenizer" / "tokenizer_config.json");
  EXPECT_CONTAINS(error_of(o), "no token ends the completion: tokenizer_config.json");
  o.chat->mask.end_of_turn = "a";
  EXPECT_EQ(error_of(o), "");
}

TEST_F(PrepareChat, DoesNotDependOnThreads) {
  std::string lines;
  for (int i = 0; i < 300; ++i)
    lines += line("q" + std::to_string(i), std::string(static_cast<size_t>(i % 7) + 1, 'x'));
  Options o = options(lines);
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
  Options o = options(pair + "\n" + large + "\n" + pair + "\n");
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
  Options o = options(
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "One"},
          {"role": "user", "content": "b"}, {"role": "assistant", "content": "Two"}]})");
  // One line of JSON: the test's is spread for the reader.
  std::string text = base::read_file(folder_ / "chat.jsonl");
  std::erase(text, '\n');
  base::write_file_atomically(folder_ / "chat.jsonl", text);
  o.chat->split_turns = true;
  EXPECT_EQ(prepare_chat(o).documents, 2);
  const auto shown = show_data({.inputs = {(folder_ / "out").string()}}, 2);
  EXPECT_EQ(shown[0].runs[1].text, "One<|im_end|>");
  EXPECT_EQ(shown[1].runs[1].text, "Two<|im_end|>");
}

TEST_F(PrepareChat, BadExamplesAreReportedWithFileAndLine) {
  Options o = options(line("q", "a") + "{broken\n" + R"({"messages": [{"role": "user"}]})" + "\n");
  EXPECT_NE(error_of(o).find("chat.jsonl:2: not valid JSON"), std::string::npos) << error_of(o);
  EXPECT_FALSE(base::file_exists(o.out / "tokens.bin"));
  o.skip_damaged = true;
  const PreparedChat prepared = prepare_chat(o);
  EXPECT_EQ(prepared.damaged, 2);
  ASSERT_EQ(prepared.first_damage.size(), 2u);
  EXPECT_NE(prepared.first_damage[1].find("chat.jsonl:3: message 1 (user) has neither"), std::string::npos);

  Options none = options(
      R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "train": false}]})");
  EXPECT_NE(error_of(none).find("chat.jsonl:1: no token would be trained"), std::string::npos);
  none.skip_damaged = true;
  EXPECT_NE(error_of(none).find("no example is left"), std::string::npos);

  const Options mixed = options(line("q", "a") + R"({"prompt": "x", "completion": "y"})" + "\n");
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
                R"("tool_calls": [{"name": "f", "arguments": ")" +
                deep + "\"}]}]}")),
            "");
}

TEST_F(PrepareChat, RefusesATemplateThatNeverTrainsTheEndOfATurn) {
  test::write_tiny_tokenizer(
      folder_ / "tokenizer",
      "{% for m in messages %}{{ m.role }}: {% generation %}{{ m.content }}{% endgeneration %}"
      "<|im_end|>{% endfor %}");
  Options o = options(line("q", "a."));
  EXPECT_NE(error_of(o).find("never trains a token that ends a turn"), std::string::npos) << error_of(o);
  EXPECT_FALSE(base::file_exists(o.out / "tokens.bin"));
  o.chat->mask.end_of_turn = ".";
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

// A run that fails after --overwrite must not have cost the earlier data, nor what says of what kind they
// are.
TEST_F(PrepareChat, EarlierDataStayWhenTheirReplacementFails) {
  prepare_chat(options(R"({"prompt": "2+2=", "answer": 4})"));
  const auto all = [&] {
    std::string bytes;
    for (const char* name : {"tokens.bin", "tokens.idx", "tokens.mask", "columns.jsonl", "manifest.json"})
      bytes += base::read_file(folder_ / "out" / name) + "|";
    return bytes;
  };
  const std::string before = all();
  EXPECT_CONTAINS(error_of(options("{broken")), "chat.jsonl:1: not valid JSON");
  EXPECT_EQ(all(), before);
  // What replaces prompts has no columns.
  prepare_chat(options(line("q", "a")));
  EXPECT_FALSE(base::file_exists(folder_ / "out" / "columns.jsonl"));
}

TEST_F(PrepareChat, AFlippedByteIsNoticed) {
  std::string lines;
  for (int i = 0; i < 50; ++i) lines += line("q" + std::to_string(i), "answer");
  prepare_chat(options(lines));
  const auto manifest = test::read_json(folder_ / "out" / "manifest.json");
  const std::string mask = base::read_file(folder_ / "out" / "tokens.mask");
  EXPECT_EQ(manifest.at("mask_xxh3"),
            fmt::format("{:016x}", base::checksum_of(std::as_bytes(std::span(mask)))));
  const auto tokenizer = tokenizer::load_tokenizer((folder_ / "tokenizer").string());
  const auto read = [&] {
    const data::Corpus corpus = data::open_corpus({folder_ / "out"}, *tokenizer, 0).corpus;
    std::vector<int32_t> ids(static_cast<size_t>(corpus.tokens()));
    corpus.read(0, ids);
  };
  read();
  const auto flip = [&](const char* name, char to) {
    const std::string bytes = base::read_file(folder_ / "out" / name);
    std::string changed = bytes;
    changed[bytes.size() / 2] = to;
    base::write_file_atomically(folder_ / "out" / name, changed);
    const std::string message = test::user_error(read);
    base::write_file_atomically(folder_ / "out" / name, bytes);
    return message;
  };
  EXPECT_CONTAINS(flip("tokens.bin", 'z'), "tokens.bin' is damaged: block 0 of 1");
  EXPECT_CONTAINS(flip("tokens.mask", mask[mask.size() / 2] == 0 ? '\1' : '\0'), "tokens.mask' is damaged");
}

// An exception in the progress report ends the work as a kill would: what is finished stays.
TEST_F(PrepareChat, ContinuesAfterAnInterruptionAtEveryShard) {
  test::write_tiny_tokenizer(folder_ / "tokenizer", "{{ strftime_now('%Y%H%M%S') }}" + test::kChatMl);
  std::string lines;
  for (int i = 0; i < 60; ++i)
    lines += line("question " + std::to_string(i % 50), std::string(static_cast<size_t>(i % 7) + 1, 'x'));
  Options whole = options(lines);
  whole.exact = true;
  whole.shard_bytes = 1000;
  whole.chat->split_turns = true;
  const auto all = [](const base::Path& folder) {
    std::string bytes;
    for (const char* name : {"tokens.bin", "tokens.idx", "tokens.mask", "manifest.json"})
      bytes += base::read_file(folder / name) + "|";
    return bytes;
  };
  for (int64_t kill = 1; kill <= 4; ++kill) {
    Options o = whole;
    int64_t calls = 0;
    o.progress = [&](prepare::Stage, int64_t, int64_t) {
      if (++calls == kill) throw std::runtime_error("killed");
    };
    EXPECT_THROW(prepare::prepare(o), std::runtime_error);
    base::write_file_atomically(o.out / "tokens.mask.1.0.partial", "left by a kill");
    o.progress = {};
    const prepare::Prepared again = prepare::prepare(o);
    EXPECT_EQ(again.shards_reused, kill - 1);
    EXPECT_FALSE(base::file_exists(o.out / "tokens.mask.1.0.partial"));
    // The time that the template shows is that of the first run: the same as in one piece.
    Options one = whole;
    one.chat->mask.wall_seconds = again.manifest.at("time_of_strftime_now");
    one.out = folder_ / "one";
    nlohmann::ordered_json expected = prepare::prepare(one).manifest, got = again.manifest;
    expected.erase("plan"), got.erase("plan");
    EXPECT_EQ(got, expected);
    for (const char* name : {"tokens.bin", "tokens.idx", "tokens.mask"})
      EXPECT_TRUE(base::read_file(o.out / name) == base::read_file(one.out / name)) << name;
    o.overwrite = false;
    EXPECT_TRUE(prepare::prepare(o).was_complete);
  }
  EXPECT_GT(all(whole.out).size(), 1000U);
}

TEST_F(PrepareChat, DropsRepeatedShortAndFilteredExamples) {
  const std::string words = "the same eleven words of a question that is asked many times over ";
  const auto scored = [&](const std::string& question, const std::string& answer, const std::string& more) {
    std::string text = line(question, answer);
    text.resize(text.size() - 2);
    return text + more + "}\n";
  };
  Options o =
      options(scored(words + "and over", "a good answer of many words", R"(, "score": 0.5)") +
              scored(words + "and over", "a good answer of many words", R"(, "score": 2)") +  // again
              scored(words + "and more", "a good answer of many words", R"(, "score": 3)") +  // nearly
              scored("quite another question", "another answer", R"(, "score": 4)") +
              scored("quite", "b", R"(, "score": 5)") +  // short
              scored("and a fourth that fails", "the condition", R"(, "score": -1)"));
  o.exact = true;
  o.near = 0.5;
  o.min_tokens = 40;
  o.where = {"score>=0"};
  o.columns = {"score"};
  const auto m = prepare::prepare(o).manifest;
  const nlohmann::ordered_json dropped = {
      {"empty", 0},     {"damaged", 0},  {"binary_files", 0},     {"filtered", 1},
      {"too_short", 1}, {"too_long", 0}, {"exact_duplicates", 1}, {"near_duplicates", 1}};
  EXPECT_EQ(m.at("dropped"), dropped);
  EXPECT_EQ(m.at("documents"), 2);
  EXPECT_EQ(data::read_npy_numbers(o.out / "score.npy"), (std::vector<double>{0.5, 4}));
  EXPECT_EQ(m.at("lengths").at("histogram").size(), 2U) << m.at("lengths");
}

// Documents of a conversation that are dropped by their length are in no count, and do not make others
// different.
TEST_F(PrepareChat, DroppedTurnsAreNotCounted) {
  const auto turns = [](const std::string& second) {
    return R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "One"},)"
           R"( {"role": "user", "content": ")" +
           second + R"("}, {"role": "assistant", "content": "Two"}]})" + "\n";
  };
  Options o = options(turns(std::string(200, 'x')) + turns(std::string(200, 'y')));
  o.chat->split_turns = true;
  o.exact = true;
  const auto whole = prepare::prepare(o).manifest;
  EXPECT_EQ(whole.at("documents"), 4);
  o.max_tokens = 100;
  const auto m = prepare::prepare(o).manifest;
  EXPECT_EQ(m.at("documents"), 1);  // the first turns of both are equal
  EXPECT_EQ(m.at("dropped").at("too_long"), 2);
  EXPECT_EQ(m.at("dropped").at("exact_duplicates"), 1);
  EXPECT_EQ(m.at("lengths").at("histogram").size(), 1U);
  // The text of a document with one byte per token but for special tokens.
  EXPECT_LT(m.at("bytes_per_token").get<double>(), 4) << m.dump(1);
}

// What is kept of prompts goes to disk: four times as many need no more memory.
TEST_F(PrepareChat, MemoryDoesNotGrowWithTheInput) {
  if (!test::kMeasuresMemory) GTEST_SKIP() << "sanitizers keep memory that was freed";
  const auto peak = [&](int count) {
    std::string lines;
    for (int i = 0; i < count; ++i)
      lines += fmt::format(R"({{"prompt": "{}+1=", "answer": "{}"}})", i, std::string(800, 'x')) + "\n";
    Options o = options(lines);
    lines.clear(), lines.shrink_to_fit();
    o.shard_bytes = int64_t{2} << 20;
    return test::peak_of([&](test::PeakMeter&) { prepare_chat(o); });
  };
  const int64_t few = peak(20'000), many = peak(80'000);  // 17 and 67 MB
  ASSERT_GT(few, 0);
  EXPECT_LT(many - few, int64_t{25} << 20) << few << " " << many;
}

// Both documents of a pair go, and the columns of a prompt go with it.
TEST_F(PrepareChat, DropsWholeRecords) {
  const std::string pair = R"({"prompt": "Q:", "chosen": "good", "rejected": "worse"})",
                    other = R"({"prompt": "Q:", "chosen": "good", "rejected": "worst"})";
  Options o = options(pair + "\n" + other + "\n" + pair + "\n");
  o.exact = true;
  prepare_chat(o);
  const auto shown = show_data({.inputs = {o.out.string()}}, 9);
  ASSERT_EQ(shown.size(), 4U);
  EXPECT_EQ(shown[1].runs.back().text, "worse</s>");
  EXPECT_EQ(shown[3].runs.back().text, "worst</s>");

  const std::string prompt = R"({"prompt": "1+1=", "answer": 2})",
                    again = R"({"prompt": "1+1=", "answer": 3})";
  o = options(prompt + "\n" + prompt + "\n" + again + "\n");
  o.exact = true;
  prepare_chat(o);
  EXPECT_EQ(base::read_file(o.out / "columns.jsonl"), "{\"answer\": 2}\n{\"answer\": 3}\n");
}

}  // namespace
}  // namespace quintet::tools
