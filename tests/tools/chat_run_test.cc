// Conversations in a recipe, and the tokenizers that data, checkpoints and models belong to.
#include <gtest/gtest.h>

#include "chat/tiny_tokenizer.h"
#include "prepare/prepare.h"
#include "tools/model_files.h"
#include "tools/run_support.h"
#include "train/run_data.h"
#include "train/support.h"

namespace quintet {
namespace {

using test::Sets;
using test::SmallRun;
using test::user_error;
using test::operator+;

std::string chat_line(const std::string& question, const std::string& answer) {
  return R"({"messages": [{"role": "user", "content": ")" + question +
         R"("}, {"role": "assistant", "content": ")" + answer + R"("}]})" + "\n";
}

class ChatRun : public SmallRun {
 public:
  ChatRun() {
    test::write_tiny_tokenizer(*this / "tokenizer");
    std::string lines;
    for (int i = 0; i < 80; ++i)
      lines += chat_line("question " + std::to_string(i), "answer " + std::to_string(i * i));
    base::write_file_atomically(*this / "chat.jsonl", lines);
  }
  Sets sets(const Sets& more = {}, const std::string& data = "chat.jsonl") const {
    return Sets{"data.path=\"" + (*this / data).string() + "\"",
                "data.tokenizer=\"" + (*this / "tokenizer").string() + "\"", "data.validation_fraction=0",
                "precision.compute=\"f64\""} +
           more;
  }
};

// A recipe that names the conversations trains on what `prepare --chat` would have written.
TEST(ChatRun, ConversationsAreTrainedAsPreparedOnes) {
  const ChatRun direct, prepared;
  const Sets best_fit = {"data.packing=\"best-fit\""};
  direct.train(direct.sets(best_fit + Sets{"data.format=\"chat\""}));
  prepare::Options options;
  options.chat.emplace();
  options.inputs = {(prepared / "chat.jsonl").string()};
  options.tokenizer = (prepared / "tokenizer").string();
  options.out = prepared / "folder";
  const nlohmann::ordered_json written = prepare::prepare(options).manifest;
  prepared.train(prepared.sets(best_fit, "folder"));  // the folder itself
  const auto x = test::read_metrics(direct.run_folder().metrics()),
             y = test::read_metrics(prepared.run_folder().metrics());
  ASSERT_EQ(x.size(), 6U);
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(x[i].at("loss"), y[i].at("loss"));
    EXPECT_EQ(x[i].at("tokens"), y[i].at("tokens"));
  }
  const train::RunData data = train::load_data(direct.recipe(direct.sets({"data.format=\"chat\""})));
  const data::Corpus& corpus = data.train.mixture().dataset(0).corpus();
  EXPECT_EQ(std::ranges::count(corpus.trained(), 1), written.at("trained_tokens").get<int64_t>());
  EXPECT_LT(written.at("trained_tokens").get<int64_t>(), written.at("tokens").get<int64_t>() / 2);
  EXPECT_CONTAINS(data.reading, "1 file, 80 conversations");
  // Everything is trained on request.
  const train::RunData all =
      train::load_data(direct.recipe(direct.sets({"data.format=\"chat\"", "data.chat.loss=\"all\""})));
  EXPECT_EQ(std::ranges::count(all.train.mixture().dataset(0).corpus().trained(), 1),
            written.at("tokens").get<int64_t>());
}

TEST(ChatRun, BadConversationsAreRefusedBeforeTraining) {
  const ChatRun run;
  const auto refused = [&](const std::string& lines, const Sets& more = {}) {
    base::write_file_atomically(run / "bad.jsonl", lines);
    return user_error(
        [&] { train::load_data(run.recipe(run.sets(Sets{"data.format=\"chat\""} + more, "bad.jsonl"))); });
  };
  EXPECT_CONTAINS(refused(chat_line("a", "b") + "{\n"), "bad.jsonl:2: not valid JSON");
  EXPECT_CONTAINS(refused(chat_line("a", "b") + "{\n"), "data.damaged = \"skip\"");
  EXPECT_CONTAINS(refused("{\"text\": \"x\"}\n"), "bad.jsonl:1: ");
  EXPECT_CONTAINS(refused("{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}\n"),
                  "preference pairs");
  EXPECT_CONTAINS(refused(""), "no conversations");
  EXPECT_CONTAINS(refused(chat_line("a", "b"), {"data.tokenizer=\"bytes\""}), "no chat template");
  base::write_file_atomically(run / "bad.txt", "text");
  EXPECT_CONTAINS(
      user_error([&] { train::load_data(run.recipe(run.sets({"data.format=\"chat\""}, "bad.txt"))); }),
      "conversations are JSON lines");
  // What was left out is counted.
  base::write_file_atomically(run / "bad.jsonl", chat_line("a", "b") + "{\n" + chat_line("c", "d"));
  const config::Recipe recipe = run.recipe(run.sets(
      {"data.format=\"chat\"", "data.damaged=\"skip\"", "data.seq_len=8", "batch.global=4", "batch.micro=1"},
      "bad.jsonl"));
  EXPECT_CONTAINS(train::load_data(recipe).reading, "2 conversations; 1 line left out, the first: ");
}

// A stream has every conversation once in an epoch, with the tokens and flags of one that was read at
// the start.
TEST(ChatRun, StreamedConversationsAreThoseReadAtTheStart) {
  const ChatRun run;
  const Sets chat = {"data.format=\"chat\""},
             stream = chat + Sets{"data.stream=true", "data.stream_window=4"};
  const train::RunData whole = train::load_data(run.recipe(run.sets(chat)));
  const train::RunData streamed = train::load_data(run.recipe(run.sets(stream)));
  const data::SampleStream& windows = *streamed.train.mixture().set(0).streams()[0];
  std::vector<int32_t> ids;
  std::vector<uint8_t> trained;
  for (int64_t w = 0, epoch = 0; epoch == 0; ++w) {
    const auto window = windows.find(4 * w).window;
    const data::Corpus& corpus = window->dataset.corpus();
    std::vector<int32_t> here(static_cast<size_t>(corpus.tokens()));
    corpus.read(0, here);
    ASSERT_EQ(corpus.trained().size(), here.size());
    // The last token of a window is the first of the next one.
    ids.insert(ids.end(), here.begin(), here.end() - 1);
    trained.insert(trained.end(), corpus.trained().begin(), corpus.trained().end() - 1);
    epoch = window->origins.back().epoch;
  }
  const data::Corpus& corpus = whole.train.mixture().dataset(0).corpus();
  std::vector<int32_t> expected(static_cast<size_t>(corpus.tokens()));
  corpus.read(0, expected);
  ASSERT_GE(ids.size(), expected.size());
  ids.resize(expected.size()), trained.resize(expected.size());
  EXPECT_EQ(ids, expected);
  EXPECT_TRUE(std::ranges::equal(trained, corpus.trained()));
  // Another mask is other data to a checkpoint.
  const train::RunData all = train::load_data(run.recipe(run.sets(stream + Sets{"data.chat.loss=\"all\""})));
  EXPECT_NE(all.train.mixture().set(0).streams()[0]->fingerprint(), windows.fingerprint());

  run.train(run.sets(stream));
  EXPECT_EQ(test::read_metrics(run.run_folder().metrics()).size(), 6U);
}

TEST(ChatRun, BadConversationsOfAStreamAreRefused) {
  const ChatRun run;
  const auto read = [&](const std::string& lines, const Sets& more = {}) {
    base::write_file_atomically(run / "bad.jsonl", lines);
    const Sets stream = {"data.format=\"chat\"", "data.stream=true", "data.stream_window=1"};
    const train::RunData data = train::load_data(run.recipe(run.sets(stream + more, "bad.jsonl")));
    const data::SampleStream& windows = *data.train.mixture().set(0).streams()[0];
    (void)windows.find(0);
    return windows.damage();
  };
  const auto refused = [&](const std::string& lines, const Sets& more = {}) {
    return user_error([&] { read(lines, more); });
  };
  EXPECT_CONTAINS(refused(chat_line("a", "b") + "{\n"), "bad.jsonl:2: not valid JSON");
  EXPECT_CONTAINS(refused("{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}\n"),
                  "preference pairs");
  base::write_file_atomically(run / "endless.jinja",
                              "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}"
                              "<|im_end|>{% endfor %}");
  EXPECT_CONTAINS(
      refused(chat_line("a", "b"), {"data.chat.template=\"" + (run / "endless.jinja").string() + "\""}),
      "never trains a token that ends a turn");
  const auto [count, first] = read(chat_line("a", "b") + "{\n", {"data.damaged=\"skip\""});
  EXPECT_EQ(count, 1);
  EXPECT_CONTAINS(first, "bad.jsonl:2: not valid JSON");
}

// Of a folder, data.skip leaves out files and folders of conversations as it does those of text.
TEST(ChatRun, SkippedFilesAreNotRead) {
  const ChatRun run;
  const std::string line = chat_line("what is the number of the house", "it is the number after forty one");
  for (const char* name : {"data/a.jsonl", "data/runs/b.jsonl", "data/draft.jsonl", "data/notes.txt"}) {
    base::make_directories((run / name).parent_path());
    base::write_file_atomically(run / name, line + line);
  }
  const auto reading = [&](const Sets& more) {
    const Sets chat = {"data.format=\"chat\"", "data.seq_len=8", "batch.global=2", "batch.micro=1"};
    return train::load_data(run.recipe(run.sets(chat + more, "data"))).reading;
  };
  EXPECT_EQ(reading({}),  // not the folder `runs`, by default
            "2 files, 4 conversations; skipped 1 folder (runs), 1 file of another kind");
  EXPECT_EQ(reading({"data.skip=[\"draft*\", \"runs/\"]"}),
            "1 file, 2 conversations; skipped 1 folder (runs), 1 file by its name, 1 file of another kind");
  EXPECT_EQ(reading({"data.skip=[]"}), "3 files, 6 conversations; skipped 1 file of another kind");
  base::write_file_atomically(run / "data/array.json", "[" + line + "," + line + "," + line + "]");
  base::write_file_atomically(run / "data/info.json", "{\"license\": \"cc0\"}");
  EXPECT_EQ(reading({"data.skip=[]"}), "4 files, 9 conversations; skipped 2 files of other kinds");
}

// Keys that say how raw text is read act on text, and are refused where all data are tokens.
TEST(RawDataKeys, AreRefusedOnTokenFiles) {
  const SmallRun run;
  std::string lines;
  for (int i = 0; i < 40; ++i)
    lines += R"({"title": "t)" + std::to_string(i) +
             R"(", "body": "some text"})"
             "\n";
  base::write_file_atomically(run / "lines.jsonl", lines);
  const auto sets = [&](const std::string& data, const Sets& more) {
    return Sets{"data.path=\"" + (run / data).string() + "\"", "data.validation_fraction=0"} + more;
  };
  const Sets text_template = {"data.template=\"{title}: {body}\""};
  const train::RunData text = train::load_data(run.recipe(sets("lines.jsonl", text_template)));
  const data::Corpus& corpus = text.train.mixture().dataset(0).corpus();
  EXPECT_EQ(corpus.documents(), 40);
  std::vector<int32_t> ids(13);
  corpus.read(0, ids);
  EXPECT_EQ(std::string(ids.begin(), ids.end()), "t0: some text");

  prepare::prepare({.inputs = {(run / "lines.jsonl").string()},
                    .tokenizer = "bytes",
                    .out = run / "prepared",
                    .field = "body"});
  train::load_data(run.recipe(sets("prepared", {})));
  const auto refused = [&](const Sets& more) {
    return user_error([&] { train::load_data(run.recipe(sets("prepared", more))); });
  };
  EXPECT_CONTAINS(refused(text_template), "data.template says how raw text is read, and has no effect here");
  EXPECT_CONTAINS(refused({"data.end=\"a\""}), "data.end says how raw text is read");
  EXPECT_CONTAINS(refused({"data.damaged=\"skip\""}), "data.damaged says how");
  EXPECT_CONTAINS(refused({"data.skip=[]"}), "data.skip says how");
  EXPECT_CONTAINS(refused({"data.format=\"chat\""}), "data.format says how");
  // Beside raw data they act on those.
  const std::string evaluation =
      "eval.sets=[{name=\"raw\", path=\"" + (run / "lines.jsonl").string() + "\"}]";
  train::load_data(run.recipe(sets("prepared", text_template + Sets{"eval.every=2", evaluation})));
}

// A template with today's date would make other tokens every day.
TEST(ChatRun, TodaysDateIsARecipesKey) {
  const ChatRun run;
  base::write_file_atomically(
      run / "dated.jinja",
      "{{ strftime_now('%d %B %Y') }}{% for m in messages %}<|im_start|>{{ m.role }}\n"
      "{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}{% endfor %}");
  const Sets dated = {"data.format=\"chat\"",
                      "data.chat.template=\"" + (run / "dated.jinja").string() + "\""};
  EXPECT_CONTAINS(user_error([&] { train::load_data(run.recipe(run.sets(dated))); }), "data.chat.date");
  const train::RunData data =
      train::load_data(run.recipe(run.sets(dated + Sets{"data.chat.date=\"2026-01-31\""})));
  std::vector<int32_t> ids(15);
  data.train.mixture().dataset(0).corpus().read(0, ids);
  EXPECT_EQ(std::string(ids.begin(), ids.end()), "31 January 2026");
}

// ---- tokenizers

// The same sizes, but two tokens have changed places.
void write_other_tokenizer(const base::Path& folder) {
  test::write_tiny_tokenizer(folder);
  auto json = test::read_json(folder / "tokenizer.json");
  std::swap(json["model"]["vocab"]["a"], json["model"]["vocab"]["b"]);
  base::write_file_atomically(folder / "tokenizer.json", json.dump());
}

TEST(TokenizerIdentity, PreparedDataBelongToTheirTokenizer) {
  const ChatRun run;
  write_other_tokenizer(run / "other");
  prepare::Options options;
  options.inputs = {(run / "data.txt").string()};
  options.tokenizer = (run / "tokenizer").string();
  options.out = run / "prepared";
  prepare::prepare(options);
  EXPECT_NO_THROW(train::load_data(run.recipe(run.sets({}, "prepared"))));
  const Sets other = {"data.tokenizer=\"" + (run / "other").string() + "\""};
  for (const char* path : {"prepared", "prepared/tokens"}) {
    const std::string message = user_error([&] { train::load_data(run.recipe(run.sets(other, path))); });
    EXPECT_CONTAINS(message, "was prepared with the tokenizer");
    EXPECT_CONTAINS(message, "Q2208");
  }
  prepare::Options chat;
  chat.chat.emplace();
  chat.inputs = {(run / "chat.jsonl").string()};
  chat.tokenizer = (run / "tokenizer").string();
  chat.out = run / "chat";
  prepare::prepare(chat);
  EXPECT_CONTAINS(user_error([&] { train::load_data(run.recipe(run.sets(other, "chat"))); }),
                  "was prepared with the tokenizer");
}

TEST(TokenizerIdentity, ACheckpointContinuesWithItsTokensOnly) {
  const ChatRun run;
  write_other_tokenizer(run / "other");
  test::write_tiny_tokenizer(run / "moved");
  const Sets text = {"data.path=\"" + (run / "data.txt").string() + "\"", "checkpoint.every=100"};
  run.train(run.sets(text + Sets{"run.steps=2"}));
  const Sets other = {"data.tokenizer=\"" + (run / "other").string() + "\"", "run.steps=3"};
  const std::string message = user_error([&] { run.train(run.sets(text + other)); });
  EXPECT_CONTAINS(message, "is the tokenizer of another model");
  EXPECT_CONTAINS(message, "--allow data.tokenizer");
  // The weights alone belong to it as well.
  train::RunOptions weights;
  weights.from = run.run_dir();
  weights.weights_only = true;
  const Sets elsewhere = {"run.dir=\"" + (run / "elsewhere").string() + "\""};
  EXPECT_CONTAINS(user_error([&] { run.train(run.sets(text + other + elsewhere), weights); }),
                  "is the tokenizer of another model");
  weights.allow = {"data.tokenizer"};
  run.train(run.sets(text + other + elsewhere), weights);
  // Where the file lies does not matter.
  run.train(run.sets(text + Sets{"data.tokenizer=\"" + (run / "moved").string() + "\"", "run.steps=3"}));
  EXPECT_EQ(test::read_metrics(run.run_folder().metrics()).size(), 3U);
}

TEST(TokenizerIdentity, AHuggingFaceFolderHasItsTokenizer) {
  const ChatRun run;
  write_other_tokenizer(run / "other");
  const Sets text = {"data.path=\"" + (run / "data.txt").string() + "\"", "checkpoint.every=100",
                     "run.steps=1"};
  run.train(run.sets(text));
  tools::export_model(run.run_dir(), run / "model", {.dtype = {}, .log = {}});
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
    base::write_file_atomically(run / "model" / file, base::read_file(run / "tokenizer" / file));
  const auto from_folder = [&](const char* tokenizer, const char* dir,
                               const train::RunOptions& options = {}) {
    run.train(run.sets(text + Sets{"model.hf=\"" + (run / "model").string() + "\"",
                                   "data.tokenizer=\"" + (run / tokenizer).string() + "\"",
                                   "run.dir=\"" + (run / dir).string() + "\""}),
              options);
  };
  const std::string message = user_error([&] { from_folder("other", "a"); });
  EXPECT_CONTAINS(message, "is the tokenizer of another model: id 97 is 'b' there and 'a' in the folder");
  EXPECT_CONTAINS(message, "--allow data.tokenizer");
  from_folder("tokenizer", "b");
  train::RunOptions allowed;
  allowed.allow = {"data.tokenizer"};
  from_folder("other", "c", allowed);
}

TEST(TokenizerIdentity, HashesOfTokensNotOfFiles) {
  const ChatRun run;
  write_other_tokenizer(run / "other");
  const auto tokenizer = tokenizer::load_tokenizer((run / "tokenizer").string()),
             other = tokenizer::load_tokenizer((run / "other").string());
  auto json = test::read_json(run / "tokenizer" / "tokenizer.json");
  base::write_file_atomically(run / "spaced.json", json.dump(7));
  EXPECT_EQ(tokenizer::vocabulary_hash(*tokenizer::load_tokenizer((run / "spaced.json").string())),
            tokenizer::vocabulary_hash(*tokenizer));
  EXPECT_NE(tokenizer::vocabulary_hash(*other), tokenizer::vocabulary_hash(*tokenizer));
  EXPECT_EQ(tokenizer::first_other_token(*tokenizer, *other), 'a');
  EXPECT_EQ(tokenizer::first_other_token(*tokenizer, *tokenizer), std::nullopt);
  EXPECT_EQ(tokenizer::first_other_token(tokenizer::ByteTokenizer(), *tokenizer), 0);
}

}  // namespace
}  // namespace quintet
