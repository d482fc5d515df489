// Examples of fine-tuning data in the formats of the field, read from JSON objects. What is wrong with
// one is a UserError without file and line; the caller adds them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/template.h"

namespace quintet::chat {

enum class Format {
  Messages,          // {"messages": [{"role", "content", "tool_calls", ...}], "tools": [...]}
  ShareGpt,          // {"conversations": [{"from": "human", "value"}]}
  Alpaca,            // {"instruction", "input", "output", "system", "history"}
  PromptCompletion,  // {"prompt", "completion"}: texts or messages
  Preference,        // {"prompt", "chosen", "rejected"}: texts or messages; the prompt may be implicit
  Prompts,           // {"prompt"}: text or messages, for reinforcement learning
};
std::string_view format_name(Format format);
std::vector<std::string> format_names();
Format format_of_name(std::string_view name);  // UserError that lists the names
// The format whose fields the object has. UserError that lists the fields of each.
Format detect_format(const Json& record);

// One document: a conversation, or plain text that is continued.
struct Example {
  Json messages = Json::array();    // empty: plain text
  Json tools;                       // a list, or null
  Json variables = Json::object();  // for the template: chat_template_kwargs of the record
  std::vector<uint8_t> trainable;   // per message: whether its tokens may be trained
  bool flagged = false;             // some message had a flag of its own, or is a prompt
  std::string prompt, completion;   // plain text
};

struct Record {
  Format format = Format::Messages;
  Example example;                  // of Preference: the chosen one
  std::optional<Example> rejected;  // of Preference
  Json columns = Json::object();    // of Prompts: the other fields, for rewards
};

// Messages get the roles of OpenAI's format; arguments of tool calls that are JSON text become objects, as
// templates expect them. Flags of messages ("train": bool, "weight": 0 or 1) are taken out of them.
Record parse_record(const Json& record, Format format);

}  // namespace quintet::chat
