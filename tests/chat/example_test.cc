// Formats of conversations, and what is wrong with bad ones.
#include "chat/example.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace quintet::chat {
namespace {

Record parsed(const char* text) {
  const Json json = Json::parse(text);
  return parse_record(json, detect_format(json));
}

std::string roles_and_contents(const Example& example) {
  std::string text;
  for (const Json& message : example.messages)
    text += message["role"].get<std::string>() + "=" +
            (message.contains("tool_calls") ? message["tool_calls"].dump()
                                            : message["content"].get<std::string>()) +
            ";";
  return text;
}

TEST(ChatFormats, AreDetectedAndBecomeMessages) {
  EXPECT_EQ(
      roles_and_contents(
          parsed(R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})")
              .example),
      "user=q;assistant=a;");
  EXPECT_EQ(
      roles_and_contents(
          parsed(
              R"({"system": "s", "conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]})")
              .example),
      "system=s;user=q;assistant=a;");
  EXPECT_EQ(roles_and_contents(parsed(R"({"instruction": "do", "input": "this", "output": "done"})").example),
            "user=do\n\nthis;assistant=done;");
  EXPECT_EQ(
      roles_and_contents(
          parsed(R"({"instruction": "do", "input": "", "output": "done", "history": [["x", "y"]]})").example),
      "user=x;assistant=y;user=do;assistant=done;");
  EXPECT_EQ(
      roles_and_contents(
          parsed(
              R"({"prompt": [{"role": "user", "content": "q"}], "completion": [{"role": "assistant", "content": "a"}]})")
              .example),
      "user=q;assistant=a;");
  const Record pair = parsed(R"({"prompt": "Q: ", "chosen": "yes", "rejected": "no"})");
  EXPECT_EQ(pair.format, Format::Preference);
  EXPECT_EQ(pair.example.prompt + "|" + pair.example.completion + "|" + pair.rejected->completion,
            "Q: |yes|no");
  EXPECT_EQ(parsed(R"({"prompt": "only"})").format, Format::Prompts);
}

TEST(ChatFormats, FindTheImplicitPromptOfPairs) {
  const Record text = parsed(R"({"chosen": "The sky is blue.", "rejected": "The sky is green."})");
  EXPECT_EQ(text.example.prompt, "The sky is");
  EXPECT_EQ(text.example.completion, " blue.");
  const Record messages =
      parsed(R"({"chosen": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
                                     "rejected": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "b"}]})");
  EXPECT_EQ(messages.example.trainable, (std::vector<uint8_t>{0, 1}));
  EXPECT_EQ(roles_and_contents(*messages.rejected), "user=q;assistant=b;");
}

TEST(ChatFormats, ReadToolCalls) {
  const Record record = parsed(R"({"messages": [{"role": "user", "content": "w?"},
      {"role": "assistant", "content": null, "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]},
      {"role": "tool", "content": "ok"}], "tools": "[{\"name\": \"f\"}]"})");
  EXPECT_EQ(record.example.messages[1]["tool_calls"][0]["function"]["arguments"]["a"], 1);
  EXPECT_EQ(record.example.tools[0]["name"], "f");
  const Record sharegpt = parsed(R"({"conversations": [{"from": "human", "value": "w?"},
      {"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {\"a\": 1}}"}, {"from": "observation", "value": "ok"},
      {"from": "gpt", "value": "done"}]})");
  EXPECT_EQ(sharegpt.example.messages[1]["tool_calls"][0]["function"]["name"], "f");
  EXPECT_EQ(sharegpt.example.messages[2]["role"], "tool");
}

TEST(ChatFormats, SayWhatIsWrongWithAnExample) {
  const std::pair<const char*, const char*> faults[] = {
      {R"([1])", "is not a JSON object"},
      {R"({"text": "x"})", "the fields \"text\" match no known format"},
      {R"({"messages": []})", "the list of messages is empty"},
      {R"({"messages": "x"})", "messages are \"x\", not a list"},
      {R"({"messages": [{"content": "x"}]})", "message 1 has no \"role\""},
      {R"({"messages": [{"role": "user", "content": "x"}, {"role": "assistant"}]})",
       "message 2 (assistant) has neither"},
      {R"({"messages": [{"role": "user", "content": 5}]})", "the content is 5"},
      {R"({"messages": [{"role": "assistant", "content": "x", "weight": 0.5}]})",
       "weights between are not supported"},
      {R"({"messages": [{"role": "user", "content": "x", "train": true}]})",
       "only messages of the assistant"},
      {R"({"messages": [{"role": "user", "content": "x"}]})", "no message of the assistant"},
      {R"({"messages": [{"role": "assistant", "content": "x", "tool_calls": [{}]}]})",
       "a tool call has no \"name\""},
      {R"({"conversations": [{"from": "martian", "value": "x"}]})",
       "\"from\" is \"martian\"; expected human"},
      {R"({"conversations": [{"value": "x"}]})", "turn 1 needs \"from\" and \"value\""},
      {R"({"instruction": 1, "output": "x"})", "the field \"instruction\" is 1, not a string"},
      {R"({"prompt": "a", "completion": 5})", "expected two texts or two lists of messages"},
      {R"({"chosen": "same", "rejected": "same"})", "chosen and rejected are the same"},
      {R"({"chosen": "a", "rejected": 5})", "expected two texts"},
      {R"({"prompt": ""})", "the prompt is empty"},
      {R"({"messages": [{"role": "assistant", "content": "x"}], "tools": 5})", "\"tools\" is 5, not a list"},
  };
  for (const auto& [text, message] : faults) {
    try {
      parsed(text);
      ADD_FAILURE() << text;
    } catch (const base::UserError& error) {
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << text << "\n" << error.what();
    }
  }
}

}  // namespace
}  // namespace quintet::chat
