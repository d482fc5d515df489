// Chat templates: a template that is accepted renders a conversation, or refuses it with a message.
#include "chat/template.h"
#include "fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quintet;
  if (size > 16384) return 0;
  static const chat::Json messages = chat::Json::parse(
      R"([{"role": "system", "content": "S"}, {"role": "user", "content": "h\u00e9llo 1"},
          {"role": "assistant", "content": "Hi", "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1, 2.5, null]}}}]}])");
  static const chat::Json tools = chat::Json::parse(
      R"([{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object",
          "properties": {"a": {"type": "string"}}, "required": ["a"]}}}])");
  return fuzz::run([&] {
    const chat::ChatTemplate chat_template(fuzz::text_of(data, size),
                                           {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
    const auto first = chat_template.render(messages, tools, {});
    const auto again = chat_template.render(messages, tools, {});
    fuzz::require(first.text == again.text, "two renderings differ");
    for (const chat::Span& span : first.generations)
      fuzz::require(span.begin <= span.end && span.end <= first.text.size(), "a span outside the text");
  });
}
