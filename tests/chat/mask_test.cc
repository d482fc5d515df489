// Which tokens are trained.
#include "chat/mask.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/temp_folder.h"
#include "chat/builtin_templates.h"
#include "chat/tiny_tokenizer.h"
#include "support/folders.h"

namespace quintet::chat {
namespace {

std::string error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const base::UserError& error) {
    return error.what();
  }
  return "";
}

class Mask : public testing::Test {
 protected:
  ChatTokenizer tokenizer(const std::string& chat_template = test::kChatMl) {
    test::write_tiny_tokenizer(folder_.path(), chat_template);
    return ChatTokenizer(folder_.path().string(), "");
  }
  static Example example(const char* record) {
    const Json json = Json::parse(record);
    return parse_record(json, detect_format(json)).example;
  }
  // The text of the trained tokens, with | between parts that are not together.
  static std::string trained(const ChatTokenizer& tokenizer, const Encoded& encoded) {
    std::string text;
    EXPECT_EQ(encoded.ids.size(), encoded.trained.size());
    for (size_t i = 0; i < encoded.ids.size(); ++i) {
      if (encoded.trained[i] == 0) continue;
      if (i > 0 && encoded.trained[i - 1] == 0 && !text.empty()) text += "|";
      text += tokenizer.tokens().decode({&encoded.ids[i], 1});
    }
    return text;
  }
  test::TempFolder folder_;
};

const char* const kTwoTurns =
    R"({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "a"},
                     {"role": "assistant", "content": "One"}, {"role": "user", "content": "b"},
                     {"role": "assistant", "content": "Two"}]})";
const std::string kMarked =
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %}A:{% generation %}{{ m.content "
    "}}<|im_end|>{% endgeneration %}{% else %}{{ m.role }}:{{ m.content }}{% endif %}\n{% endfor %}";

TEST_F(Mask, IsTheDifferenceOfPrefixesWithoutGenerationBlocks) {
  const auto t = tokenizer();
  const Encoded encoded = encode_example(t, example(kTwoTurns), {});
  EXPECT_EQ(trained(t, encoded), "One<|im_end|>|Two<|im_end|>");  // neither headers nor line breaks
  EXPECT_EQ(encoded.turns, 2);
  EXPECT_EQ(encoded.ended, 2);
  EXPECT_EQ(encoded.straddling, 0);
}

TEST_F(Mask, IsWhatGenerationBlocksWrote) {
  const auto t = tokenizer(kMarked);
  const Encoded encoded = encode_example(t, example(kTwoTurns), {});
  EXPECT_EQ(trained(t, encoded), "One<|im_end|>|Two<|im_end|>");
  EXPECT_EQ(t.tokens().token(encoded.ids[0]), "<s>");
  EXPECT_NE(t.tokens().token(encoded.ids[1]), "<s>");  // the template's, and no second one
}

// Tokenizers without a template are tuned with one of the common ones, by its name.
TEST_F(Mask, BuiltInTemplatesMarkWhatIsTrained) {
  const char* const record =
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "One"},
                       {"role": "user", "content": "b"}, {"role": "assistant", "content": "Two"}]})";
  struct Case {
    const char* name;
    std::string text, trained, end;
  };
  for (const Case& c : std::vector<Case>{
           {"chatml",
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nOne<|im_end|>\n<|im_start|>user\nb<|im_"
            "end|>\n"
            "<|im_start|>assistant\nTwo<|im_end|>\n",
            "One<|im_end|>|Two<|im_end|>", ""},
           {"llama3",
            "<s><|start_header_id|>user<|end_header_id|>\n\na<|eot_id|><|start_header_id|>assistant"
            "<|end_header_id|>\n\nOne<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nb<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nTwo<|eot_id|>",
            "One<|eot_id|>|Two<|eot_id|>", "<|eot_id|>"},
           {"gemma",
            "<s><start_of_turn>user\na<end_of_turn>\n<start_of_turn>model\nOne<end_of_turn>\n<start_of_turn>"
            "user\nb<end_of_turn>\n<start_of_turn>model\nTwo<end_of_turn>\n",
            "One<end_of_turn>|Two<end_of_turn>", ""},
           {"mistral", "<s>[INST] a [/INST] One</s>[INST] b [/INST] Two</s>", " One</s>| Two</s>", ""},
           {"phi3",
            "<|user|>\na<|end|>\n<|assistant|>\nOne<|end|>\n<|user|>\nb<|end|>\n<|assistant|>\nTwo<|end|>\n",
            "One<|end|>|Two<|end|>", "<|end|>"},
           {"zephyr", "<|user|>\na</s>\n<|assistant|>\nOne</s>\n<|user|>\nb</s>\n<|assistant|>\nTwo</s>\n",
            "One</s>|Two</s>", ""}}) {
    test::write_tiny_tokenizer(folder_.path());
    const ChatTokenizer t(folder_.path().string(), c.name);
    const Encoded encoded = encode_example(t, example(record), {.end_of_turn = c.end});
    EXPECT_EQ(encoded.text, c.text);
    EXPECT_EQ(trained(t, encoded), c.trained);
    EXPECT_EQ(encoded.ended, 2) << c.name;
  }
  EXPECT_EQ(builtin_template("chatml"),
            base::read_file(base::Path(test::source_dir()) / "recipes/chat/chatml.jinja"));
  EXPECT_EQ(builtin_template_names().size(), 6U);
  EXPECT_CONTAINS(error_of([&] { ChatTokenizer(folder_.path().string(), "chatmi"); }),
                  "built in: chatml, gemma, llama3, mistral, phi3, zephyr");
}

// With the template's own token and one in the text, or two of the template's.
TEST_F(Mask, TwoTokensAtTheBeginningAreRefused) {
  const char* const twice = "the conversation begins with '<s>' twice";
  const auto prompt = [](const char* record) {
    return parse_record(Json::parse(record), Format::Prompts).example;
  };
  {
    const auto t = tokenizer("{{ bos_token }}" + kMarked);
    EXPECT_CONTAINS(error_of([&] { encode_example(t, example(kTwoTurns), {}); }), twice);
    EXPECT_CONTAINS(error_of([&] { encode_example(t, example(kTwoTurns), {.loss = Loss::All}); }), twice);
    EXPECT_CONTAINS(
        error_of([&] { encode_prompt(t, prompt(R"({"prompt": [{"role": "user", "content": "a"}]})"), {}); }),
        twice);
  }
  const auto t = tokenizer(kMarked);
  EXPECT_CONTAINS(
      error_of([&] { encode_example(t, example(R"({"prompt": "<s><s>a", "completion": "b"})"), {}); }),
      twice);
  EXPECT_CONTAINS(error_of([&] { encode_prompt(t, prompt(R"({"prompt": "<s><s>a"})"), {}); }), twice);
  EXPECT_EQ(error_of([&] { encode_prompt(t, prompt(R"({"prompt": "<s>a<s>"})"), {}); }), "");
  EXPECT_EQ(error_of([&] { encode_example(t, example(kTwoTurns), {}); }), "");
}

TEST_F(Mask, OfTheLastTurnOnlyAndOfEverything) {
  for (const std::string& source : {test::kChatMl, kMarked}) {
    const auto t = tokenizer(source);
    EXPECT_EQ(trained(t, encode_example(t, example(kTwoTurns), {.loss = Loss::Last})), "Two<|im_end|>");
    const Encoded all = encode_example(t, example(kTwoTurns), {.loss = Loss::All});
    EXPECT_EQ(trained(t, all), all.text);
    EXPECT_EQ(std::count(all.trained.begin(), all.trained.end(), 1), static_cast<int64_t>(all.ids.size()));
  }
}

TEST_F(Mask, FollowsTheFlagsOfMessages) {
  const char* flagged = R"({"messages": [{"role": "user", "content": "a"},
      {"role": "assistant", "content": "One", "train": false}, {"role": "user", "content": "b"},
      {"role": "assistant", "content": "Two", "weight": 1}, {"role": "user", "content": "c"},
      {"role": "assistant", "content": "Three", "weight": 0}]})";
  for (const std::string& source : {test::kChatMl, kMarked}) {
    const auto t = tokenizer(source);
    EXPECT_EQ(trained(t, encode_example(t, example(flagged), {})), "Two<|im_end|>");
    EXPECT_EQ(trained(t, encode_example(t, example(flagged), {.loss = Loss::Last})), "Two<|im_end|>");
  }
}

TEST_F(Mask, ThatIsAllZeroIsRefused) {
  const auto t = tokenizer();
  const char* none = R"({"messages": [{"role": "user", "content": "a"},
                                      {"role": "assistant", "content": "x", "train": false}]})";
  EXPECT_NE(error_of([&] { encode_example(t, example(none), {}); }).find("no token would be trained"),
            std::string::npos);
  const auto silent =
      tokenizer("{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}");
  EXPECT_NE(
      error_of([&] { encode_example(silent, example(kTwoTurns), {}); }).find("no token would be trained"),
      std::string::npos);
  EXPECT_NE(error_of([&] {
              example(R"({"messages": [{"role": "user", "content": "a"}]})");
            }).find("no message of the assistant"),
            std::string::npos);
}

TEST_F(Mask, RefusesATemplateThatRewritesEarlierTurns) {
  const std::string rewrites =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and not loop.last %}"
      "{{ m.content.split('</think>')[-1] }}{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
  const char* thinking = R"({"messages": [{"role": "user", "content": "a"},
      {"role": "assistant", "content": "<think>x</think>One"}, {"role": "user", "content": "b"},
      {"role": "assistant", "content": "<think>y</think>Two"}]})";
  const auto t = tokenizer(rewrites);
  const std::string error = error_of([&] { encode_example(t, example(thinking), {}); });
  EXPECT_NE(error.find("message 2: the template renders it differently"), std::string::npos) << error;
  EXPECT_NE(error.find("--loss last"), std::string::npos) << error;
  EXPECT_EQ(trained(t, encode_example(t, example(thinking), {.loss = Loss::Last})),
            "<think>y</think>Two<|im_end|>");
}

TEST_F(Mask, RefusesAGenerationPromptThatTheTurnDoesNotBeginWith) {
  const auto t = tokenizer(
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n<think>{% endif %}");
  EXPECT_NE(error_of([&] { encode_example(t, example(kTwoTurns), {}); }).find("generation prompt is not how"),
            std::string::npos);
}

TEST_F(Mask, CountsTurnsThatEnd) {
  const auto t = tokenizer(
      "{% for m in messages %}{{ m.role }}:{% generation %}{{ m.content }}{% endgeneration %}<|im_end|>{% "
      "endfor %}");
  const Encoded encoded = encode_example(t, example(kTwoTurns), {});
  EXPECT_GT(encoded.turns, 0);
  EXPECT_EQ(encoded.ended, 0);
  EXPECT_GT(encode_example(t, example(kTwoTurns), {.end_of_turn = "Two"}).ended, 0);
}

TEST_F(Mask, TakesATokenAcrossACut) {
  // The prompt ends with one line break, the answer begins with another: they are one token.
  const auto t = tokenizer(
      "{% for m in messages %}{{ m.role }}:\n{{ m.content }}</s>{% endfor %}"
      "{% if add_generation_prompt %}assistant:\n{% endif %}");
  const Encoded encoded = encode_example(
      t,
      example(
          R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "\nyes"}]})"),
      {});
  EXPECT_EQ(encoded.straddling, 1);
  EXPECT_EQ(trained(t, encoded), "\n\nyes</s>");
  EXPECT_EQ(encoded.ids, t.tokens().encode(encoded.text));
}

TEST_F(Mask, FindsCutsByPrefixesWhereTheTokenizerLooksAtTheStart) {
  // Unigram puts a space before a text, so that parts do not have the tokens of the whole.
  const auto unigram =
      tokenizer::load_tokenizer(test::source_dir() + "/tests/golden/tokenizers/unigram.json");
  const std::string text = "the rank sends its shard";
  const auto ids = unigram->encode(text);
  int64_t straddling = 0;
  const auto flags = flag_tokens(*unigram, text, ids, {{9, 15}}, straddling);
  ASSERT_EQ(flags.size(), ids.size());
  std::string part;
  for (size_t i = 0; i < ids.size(); ++i)
    if (flags[i] != 0) part += unigram->token(ids[i]);
  EXPECT_NE(part.find("s"), std::string::npos);
  EXPECT_LT(std::count(flags.begin(), flags.end(), 1), static_cast<int64_t>(ids.size()));
}

TEST_F(Mask, OfPlainTextIsTheCompletion) {
  const auto t = tokenizer();
  const Encoded encoded = encode_example(t, example(R"({"prompt": "2+2=", "completion": "4"})"), {});
  EXPECT_EQ(encoded.text, "2+2=4</s>");
  EXPECT_EQ(trained(t, encoded), "4</s>");
  EXPECT_EQ(encoded.ended, 1);
}

TEST_F(Mask, OfPreferencePairsIsWhatFollowsThePrompt) {
  const auto t = tokenizer();
  const Json json =
      Json::parse(R"({"chosen": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "p"},
      {"role": "user", "content": "q"}, {"role": "assistant", "content": "good"}],
      "rejected": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "p"},
      {"role": "user", "content": "q"}, {"role": "assistant", "content": "bad"}]})");
  const Record record = parse_record(json, Format::Preference);
  EXPECT_EQ(trained(t, encode_example(t, record.example, {})), "good<|im_end|>");
  EXPECT_EQ(trained(t, encode_example(t, *record.rejected, {})), "bad<|im_end|>");
}

TEST_F(Mask, OfPromptsIsAllZero) {
  const auto t = tokenizer();
  const Json json = Json::parse(R"({"prompt": [{"role": "user", "content": "q"}], "answer": "42"})");
  const Record record = parse_record(json, detect_format(json));
  const Encoded encoded = encode_prompt(t, record.example, {});
  EXPECT_TRUE(encoded.text.ends_with("<|im_start|>assistant\n"));
  EXPECT_EQ(encoded.trained, std::vector<uint8_t>(encoded.ids.size(), 0));
  EXPECT_EQ(record.columns.dump(), R"({"answer":"42"})");
}

TEST_F(Mask, OfAGenerationBlockWithinAMacroIsRefused) {
  const auto t = tokenizer(
      "{% macro turn(m) %}{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}{% endmacro %}"
      "{% for m in messages %}{{ turn(m) }}{% endfor %}");
  EXPECT_NE(
      error_of([&] { encode_example(t, example(kTwoTurns), {}); }).find("generation block within a macro"),
      std::string::npos);
}

TEST(ChatTokenizerFolder, ReadsTemplatesAndSpecialTokens) {
  const test::TempFolder folder;
  test::write_tiny_tokenizer(folder.path());
  const Json messages = Json::parse(R"([{"role": "user", "content": "x"}])");
  {
    const ChatTokenizer t(folder.path().string(), "");
    EXPECT_EQ(t.special("bos_token"), "<s>");
    EXPECT_EQ(t.special("eos_token"), "</s>");
    EXPECT_EQ(t.chat_template(false).source(), test::kChatMl);
  }
  base::write_file_atomically(folder / "tokenizer_config.json",
                              R"({"chat_template": [{"name": "default", "template": "D{{ eos_token }}"},
                                                    {"name": "tool_use", "template": "T"}]})");
  base::write_file_atomically(folder / "special_tokens_map.json", R"({"eos_token": "</s>"})");
  {
    const ChatTokenizer t(folder.path().string(), "");
    EXPECT_EQ(t.chat_template(false).render(messages, nullptr, {}).text, "D</s>");
    EXPECT_EQ(t.chat_template(true).source(), "T");
    EXPECT_EQ(ChatTokenizer(folder.path().string(), "tool_use").chat_template(false).source(), "T");
  }
  base::write_file_atomically(folder / "chat_template.jinja", "file");
  base::make_directories(folder / "additional_chat_templates");
  base::write_file_atomically(folder / "additional_chat_templates" / "rag.jinja", "rag");
  EXPECT_EQ(ChatTokenizer(folder.path().string(), "").chat_template(true).source(), "file");
  EXPECT_EQ(ChatTokenizer(folder.path().string(), "rag").chat_template(false).source(), "rag");
  EXPECT_NE(
      error_of([&] { ChatTokenizer(folder.path().string(), "nope"); }).find("its templates: default, rag"),
      std::string::npos);
  EXPECT_NE(error_of([] { ChatTokenizer("bytes", "").chat_template(false); }).find("has no chat template"),
            std::string::npos);
}

}  // namespace
}  // namespace quintet::chat
