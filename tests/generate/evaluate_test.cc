#include "generate/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace quintet::generate {
namespace {

const tokenizer::ByteTokenizer kBytes;

std::string text_of(const std::vector<int32_t>& ids) { return {ids.begin(), ids.end()}; }

TEST(Evaluate, LinesAreTextsOrQuestions) {
  const auto tasks = parse_tasks(
      "{\"text\": \"a\"}\n\n{\"context\": \"c\", \"choices\": [\"x\", \"y\"], \"answer\": 1}\n", "f");
  ASSERT_EQ(tasks.size(), 2u);
  EXPECT_EQ(tasks[0].text, "a");
  EXPECT_EQ(tasks[1].choices, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(tasks[1].answer, 1);
  for (const char* bad : {"", "[]", "{\"text\": 3}", "{\"text\": \"\"}", "{\"context\": \"c\"}",
                          "{\"context\": \"c\", \"choices\": [\"x\"], \"answer\": 0}",
                          "{\"context\": \"c\", \"choices\": [\"x\", \"\"], \"answer\": 0}",
                          "{\"context\": \"c\", \"choices\": [\"x\", \"y\"], \"answer\": 2}"})
    EXPECT_THROW(parse_tasks(bad, "f"), base::UserError) << bad;
}

// Every token is predicted once; windows after the first see as many tokens as fit.
TEST(Evaluate, WindowsPredictEveryTokenOnce) {
  const std::string text = "abcdefghijk";
  for (const int64_t length : {3, 4, 5, 11, 20})
    for (const bool prefix : {false, true}) {
      EvaluateOptions options{.max_length = length};
      if (prefix) options.prefix = 'P';
      std::string predicted;
      for (const Piece& p : pieces_of({.text = text}, kBytes, options)) {
        EXPECT_LE(p.ids.size(), static_cast<size_t>(length) + 1);
        predicted += text_of(p.ids).substr(p.first + 1);
      }
      EXPECT_EQ(predicted, prefix ? text : text.substr(1)) << length;
    }
  // lm-eval: [P]abc -> "abc" is predicted from P, a, b; the last window is filled up from the left.
  EvaluateOptions options{.max_length = 4, .prefix = 'P'};
  const auto pieces = pieces_of({.text = "abcdefghij"}, kBytes, options);
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(text_of(pieces[0].ids), "Pabcd");
  EXPECT_EQ(text_of(pieces[1].ids), "defgh");
  EXPECT_EQ(text_of(pieces[2].ids), "fghij");
  EXPECT_EQ(pieces[2].first, 2u);
}

TEST(Evaluate, SpacesBelongToTheChoice) {
  const auto pieces =
      pieces_of({.context = "Q:  ", .choices = {"yes", "no"}, .answer = 0}, kBytes, {.max_length = 100});
  EXPECT_EQ(text_of(pieces[0].ids), "Q:   yes");
  EXPECT_EQ(pieces[0].first, 1u);  // log_probs[1] is that of the first space
  // A context that is too long loses its beginning, a choice nothing.
  const auto cut =
      pieces_of({.context = "0123456789", .choices = {"yes", "no"}, .answer = 0}, kBytes, {.max_length = 6});
  EXPECT_EQ(text_of(cut[0].ids), "789 yes");
  EXPECT_EQ(cut[0].first, 2u);
}

TEST(Evaluate, ChoicesAsLmEvalCountsThem) {
  // By sum the first, per character the second, per byte the third.
  const Task task{.context = "c", .choices = {"a", "bbbb", "\u00e4\u00e4\u00e4"}, .answer = 0};
  const std::vector<double> sums = {-1.0, -2.0, -2.4};
  for (const auto& [answer, right, norm, bytes] :
       {std::tuple{0, 1, 0, 0}, std::tuple{1, 0, 1, 0}, std::tuple{2, 0, 0, 1}}) {
    Task t = task;
    t.answer = answer;
    Evaluation e;
    add_result(t, {}, sums, e);
    EXPECT_EQ(e.questions, 1);
    EXPECT_EQ(e.right, right) << answer;
    EXPECT_EQ(e.right_norm, norm) << answer;
    EXPECT_EQ(e.right_bytes, bytes) << answer;
  }
}

TEST(Evaluate, PerplexitiesOfTexts) {
  Evaluation e;
  const Task task{.text = "two words"};
  add_result(task, {{std::vector<int32_t>(10), 0}}, {-std::log(8.0)}, e);
  EXPECT_EQ(e.tokens, 9);
  EXPECT_EQ(e.bytes, 9);
  EXPECT_EQ(e.words, 2);
  EXPECT_NEAR(e.word_perplexity(), std::sqrt(8.0), 1e-12);
  EXPECT_NEAR(e.bits_per_byte(), 3.0 / 9, 1e-12);
  EXPECT_NEAR(e.byte_perplexity(), std::exp2(3.0 / 9), 1e-12);
  EXPECT_NEAR(e.perplexity(), std::exp2(3.0 / 9), 1e-12);
}

}  // namespace
}  // namespace quintet::generate
