#include "chat/example.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"

namespace quintet::chat {
namespace {

using base::fail_user;

constexpr std::pair<std::string_view, Format> kFormats[] = {
    {"messages", Format::Messages},     {"sharegpt", Format::ShareGpt},
    {"alpaca", Format::Alpaca},         {"prompt_completion", Format::PromptCompletion},
    {"preference", Format::Preference}, {"prompts", Format::Prompts},
};

std::string shown(const Json& value) {
  return base::printable(value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 60));
}

std::string field_list(const Json& record) {
  std::string names;
  for (const auto& [key, value] : record.items())
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", key);
  return names.empty() ? "none" : base::printable(names.substr(0, 200));
}

const Json& required(const Json& record, const char* field) {
  const auto found = record.find(field);
  if (found == record.end() || found->is_null())
    fail_user("no field \"{}\"; the fields are {}", field, field_list(record));
  return *found;
}

std::string text_field(const Json& record, const char* field) {
  const Json& value = required(record, field);
  if (!value.is_string()) fail_user("the field \"{}\" is {}, not a string", field, shown(value));
  return value.get<std::string>();
}

std::string text_or_empty(const Json& record, const char* field) {
  const auto found = record.find(field);
  return found == record.end() || found->is_null() ? "" : text_field(record, field);
}

// A list, or the text of one.
Json list_of_tools(const Json& record) {
  const auto found = record.find("tools");
  if (found == record.end() || found->is_null()) return {};
  Json tools = *found;
  if (tools.is_string()) {
    const auto text = tools.get<std::string>();
    if (text.empty()) return {};
    tools = base::parse_ordered_json(text);
    if (tools.is_discarded()) fail_user("the field \"tools\" is {}", base::json_fault(text));
  }
  if (!tools.is_array()) fail_user("the field \"tools\" is {}, not a list", shown(*found));
  return tools.empty() ? Json() : tools;
}

void parse_arguments(Json& message, size_t number) {
  if (message.contains("function_call"))
    fail_user("message {}: \"function_call\" is an old form; use \"tool_calls\"", number);
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || calls->is_null()) return;
  if (!calls->is_array()) fail_user("message {}: \"tool_calls\" is {}, not a list", number, shown(*calls));
  for (Json& call : *calls) {
    if (!call.is_object()) fail_user("message {}: a tool call is {}, not an object", number, shown(call));
    Json& function = call.contains("function") ? call["function"] : call;
    if (!function.is_object() || !function.contains("name"))
      fail_user("message {}: a tool call has no \"name\": {}", number, shown(call));
    const auto arguments = function.find("arguments");
    if (arguments == function.end() || !arguments->is_string()) continue;
    Json parsed = base::parse_ordered_json(arguments->get<std::string>());
    if (parsed.is_object()) *arguments = std::move(parsed);
  }
}

// Takes the flag out of a message. Empty: it has none.
std::optional<bool> take_flag(Json& message, size_t number) {
  std::optional<bool> flag;
  for (const char* name : {"train", "weight"}) {
    const auto found = message.find(name);
    if (found == message.end()) continue;
    const Json value = std::move(*found);
    message.erase(found);
    if (value.is_null()) continue;
    if (value.is_boolean()) {
      flag = value.get<bool>();
    } else if (value.is_number() && (value == 0 || value == 1)) {
      flag = value == 1;
    } else {
      fail_user("message {}: \"{}\" is {}; expected true, false, 0 or 1 (weights between are not supported)",
                number, name, shown(value));
    }
  }
  return flag;
}

// Appends checked messages, trained by default where `train` says and the role is the assistant's.
void add_messages(const Json& messages, bool train, Example& example) {
  if (!messages.is_array()) fail_user("messages are {}, not a list", shown(messages));
  for (Json message : messages) {
    const size_t number = example.messages.size() + 1;
    if (!message.is_object()) fail_user("message {} is {}, not an object", number, shown(message));
    const auto role = message.find("role");
    if (role == message.end()) fail_user("message {} has no \"role\": {}", number, shown(message));
    if (!role->is_string() || role->get_ref<const std::string&>().empty())
      fail_user("message {}: the role is {}, not a name", number, shown(*role));
    const auto content = message.find("content");
    const bool calls = message.contains("tool_calls") && !message["tool_calls"].is_null();
    if ((content == message.end() || content->is_null()) && !calls)
      fail_user("message {} ({}) has neither \"content\" nor \"tool_calls\"", number,
                base::printable(role->get<std::string>()));
    if (content != message.end() && !content->is_null() && !content->is_string() && !content->is_array())
      fail_user("message {}: the content is {}, not a text or a list of parts", number, shown(*content));
    parse_arguments(message, number);
    const bool assistant = *role == "assistant";
    const auto flag = take_flag(message, number);
    if (flag && *flag && !assistant)
      fail_user("message {} ({}) is marked to be trained; only messages of the assistant can be", number,
                base::printable(role->get<std::string>()));
    example.flagged = example.flagged || flag || !train;
    example.trainable.push_back(assistant && train && flag.value_or(true));
    example.messages.push_back(std::move(message));
  }
}

void add_message(const char* role, Json content, bool train, Example& example) {
  add_messages(Json::array({Json{{"role", role}, {"content", std::move(content)}}}), train, example);
}

// Messages of ShareGPT, with the role names of its variants.
Json sharegpt_messages(const Json& turns) {
  static constexpr std::pair<std::string_view, const char*> roles[] = {
      {"human", "user"},          {"user", "user"},
      {"gpt", "assistant"},       {"assistant", "assistant"},
      {"chatgpt", "assistant"},   {"bing", "assistant"},
      {"bard", "assistant"},      {"model", "assistant"},
      {"system", "system"},       {"tool", "tool"},
      {"observation", "tool"},    {"function_response", "tool"},
      {"developer", "developer"}, {"function_call", "assistant"}};
  if (!turns.is_array()) fail_user("the field \"conversations\" is {}, not a list", shown(turns));
  Json messages = Json::array();
  for (const Json& turn : turns) {
    const size_t number = messages.size() + 1;
    if (!turn.is_object() || !turn.contains("from") || !turn.contains("value"))
      fail_user("turn {} needs \"from\" and \"value\": {}", number, shown(turn));
    const std::string from = turn["from"].is_string() ? turn["from"].get<std::string>() : "";
    const auto* role = std::find_if(std::begin(roles), std::end(roles),
                                    [&](const auto& each) { return each.first == from; });
    if (role == std::end(roles))
      fail_user("turn {}: \"from\" is {}; expected human, gpt, system, tool, function_call or observation",
                number, shown(turn["from"]));
    Json message{{"role", role->second}, {"content", turn["value"]}};
    if (from == "function_call") {
      const std::string text = turn["value"].is_string() ? turn["value"].get<std::string>() : "";
      Json call = base::parse_ordered_json(text);
      if (call.is_object()) call = Json::array({call});
      if (!call.is_array())
        fail_user("turn {}: the function call is not JSON: {}", number, shown(turn["value"]));
      Json calls = Json::array();
      for (const Json& each : call) calls.push_back({{"type", "function"}, {"function", each}});
      message = Json{{"role", "assistant"}, {"content", nullptr}, {"tool_calls", calls}};
    }
    for (const char* flag : {"train", "weight"})
      if (turn.contains(flag)) message[flag] = turn[flag];
    messages.push_back(std::move(message));
  }
  return messages;
}

void alpaca_messages(const Json& record, Example& example) {
  if (const std::string system = text_or_empty(record, "system"); !system.empty())
    add_message("system", system, true, example);
  if (const auto history = record.find("history"); history != record.end() && !history->is_null())
    for (const Json& turn : *history) {
      if (!turn.is_array() || turn.size() != 2)
        fail_user("\"history\" needs pairs of texts: {}", shown(turn));
      add_message("user", turn[0], true, example);
      add_message("assistant", turn[1], true, example);
    }
  const std::string input = text_or_empty(record, "input");
  add_message("user", text_field(record, "instruction") + (input.empty() ? "" : "\n\n" + input), true,
              example);
  add_message("assistant", text_field(record, "output"), true, example);
}

// Adds a prompt and an answer, both texts or both messages.
void add_pair(const Json& prompt, const Json& answer, const char* name, Example& example) {
  if (prompt.is_string() && answer.is_string()) {
    example.prompt = prompt.get<std::string>();
    example.completion = answer.get<std::string>();
    return;
  }
  if (!prompt.is_array() && !(prompt.is_string() && answer.is_array()))
    fail_user("\"prompt\" is {} and \"{}\" is {}; expected two texts or two lists of messages", shown(prompt),
              name, shown(answer));
  if (prompt.is_string())
    add_message("user", prompt, false, example);
  else
    add_messages(prompt, false, example);
  if (answer.is_string())
    add_message("assistant", answer, true, example);
  else
    add_messages(answer, true, example);
}

// What chosen and rejected have in common at their beginnings: messages, or text up to a space.
Json implicit_prompt(Json& chosen, Json& rejected) {
  if (chosen.is_array() && rejected.is_array()) {
    size_t common = 0;
    while (common < chosen.size() && common < rejected.size() && chosen[common] == rejected[common]) ++common;
    if (common == chosen.size() || common == rejected.size()) fail_user("chosen and rejected are the same");
    Json prompt = Json::array();
    for (size_t i = 0; i < common; ++i) prompt.push_back(chosen[i]);
    chosen.erase(chosen.begin(), chosen.begin() + static_cast<int64_t>(common));
    rejected.erase(rejected.begin(), rejected.begin() + static_cast<int64_t>(common));
    return prompt;
  }
  if (!chosen.is_string() || !rejected.is_string())
    fail_user("\"chosen\" is {} and \"rejected\" is {}; expected two texts or two lists of messages",
              shown(chosen), shown(rejected));
  const auto a = chosen.get<std::string>(), b = rejected.get<std::string>();
  size_t common = 0;
  while (common < a.size() && common < b.size() && a[common] == b[common]) ++common;
  if (common == a.size() && common == b.size()) fail_user("chosen and rejected are the same");
  while (common > 0 && common < a.size() && (static_cast<uint8_t>(a[common]) & 0xC0) == 0x80) --common;
  if (common > 0 && a[common - 1] == ' ') --common;
  chosen = a.substr(common);
  rejected = b.substr(common);
  return a.substr(0, common);
}

void set_extras(const Json& record, Example& example) {
  example.tools = list_of_tools(record);
  const auto variables = record.find("chat_template_kwargs");
  if (variables == record.end() || variables->is_null()) return;
  if (!variables->is_object()) fail_user("\"chat_template_kwargs\" is {}, not an object", shown(*variables));
  example.variables = *variables;
}

void require_assistant(const Example& example) {
  if (example.messages.empty()) return;
  if (std::none_of(example.messages.begin(), example.messages.end(),
                   [](const Json& message) { return message["role"] == "assistant"; }))
    fail_user("no message of the assistant: there is nothing to train");
}

}  // namespace

std::string_view format_name(Format format) {
  for (const auto& [name, each] : kFormats)
    if (each == format) return name;
  return "";
}

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const auto& [name, format] : kFormats) names.emplace_back(name);
  return names;
}

Format format_of_name(std::string_view name) {
  for (const auto& [each, format] : kFormats)
    if (each == name) return format;
  std::string names;
  for (const auto& [each, format] : kFormats) names += fmt::format("{}{}", names.empty() ? "" : ", ", each);
  fail_user("unknown chat format '{}'; expected one of {}", base::printable(name), names);
}

Format detect_format(const Json& record) {
  if (!record.is_object()) fail_user("{} is not a JSON object", shown(record));
  const auto has = [&](const char* field) { return record.contains(field); };
  if (has("chosen") && has("rejected")) return Format::Preference;
  if (has("messages")) return Format::Messages;
  if (has("conversations")) return Format::ShareGpt;
  if (has("instruction") && has("output")) return Format::Alpaca;
  if (has("prompt") && has("completion")) return Format::PromptCompletion;
  if (has("prompt")) return Format::Prompts;
  fail_user(
      "the fields {} match no known format; expected messages, conversations (ShareGPT), instruction and "
      "output (Alpaca), prompt and completion, chosen and rejected, or prompt",
      field_list(record));
}

Record parse_record(const Json& record, Format format) {
  if (!record.is_object()) fail_user("{} is not a JSON object", shown(record));
  Record out;
  out.format = format;
  Example& example = out.example;
  switch (format) {
    case Format::Messages:
      add_messages(required(record, "messages"), true, example);
      if (example.messages.empty()) fail_user("the list of messages is empty");
      break;
    case Format::ShareGpt: {
      if (const std::string system = text_or_empty(record, "system"); !system.empty())
        add_message("system", system, true, example);
      const Json& turns = required(record, "conversations");
      const bool roles =
          turns.is_array() && !turns.empty() && turns[0].is_object() && turns[0].contains("role");
      add_messages(roles ? turns : sharegpt_messages(turns), true, example);
      if (example.messages.empty()) fail_user("the conversation is empty");
      break;
    }
    case Format::Alpaca:
      alpaca_messages(record, example);
      break;
    case Format::PromptCompletion:
      add_pair(required(record, "prompt"), required(record, "completion"), "completion", example);
      break;
    case Format::Preference: {
      Json chosen = required(record, "chosen"), rejected = required(record, "rejected");
      const bool given = record.contains("prompt") && !record["prompt"].is_null();
      const Json prompt = given ? record["prompt"] : implicit_prompt(chosen, rejected);
      out.rejected.emplace();
      add_pair(prompt, chosen, "chosen", example);
      add_pair(prompt, rejected, "rejected", *out.rejected);
      set_extras(record, *out.rejected);
      require_assistant(*out.rejected);
      break;
    }
    case Format::Prompts: {
      const Json& prompt = required(record, "prompt");
      if (prompt.is_string())
        example.prompt = prompt.get<std::string>();
      else
        add_messages(prompt, false, example);
      if (example.prompt.empty() && example.messages.empty()) fail_user("the prompt is empty");
      for (const auto& [key, value] : record.items())
        if (key != "prompt" && key != "tools" && key != "chat_template_kwargs") out.columns[key] = value;
      break;
    }
  }
  set_extras(record, example);
  if (format != Format::Prompts) require_assistant(example);
  return out;
}

}  // namespace quintet::chat
