#include "chat/template.h"

#include <algorithm>

#include "base/error.h"

namespace quintet::chat {
namespace {

// A message as transformers hands it to templates.
Json template_message(const Json& message) {
  Json out = Json::object();
  for (const auto& [key, value] : message.items())
    if (!value.is_null()) out[key] = value;
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    if (!out.contains(name)) continue;
    const Json reasoning = out[name];
    Json ordered = Json::object();
    ordered["thinking"] = reasoning;
    for (const auto& [key, value] : out.items()) ordered[key] = value;
    ordered["reasoning_content"] = reasoning;
    return ordered;
  }
  return out;
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view source, std::vector<std::pair<std::string, std::string>> special)
    : source_(source), template_(source), special_(std::move(special)) {}

Rendering ChatTemplate::render(const Json& messages, const Json& tools, const RenderOptions& options) const {
  std::vector<std::pair<std::string, jinja::Value>> variables;
  const auto set = [&](const std::string& name, jinja::Value value) {
    const auto same = [&](const auto& each) { return each.first == name; };
    const auto old = std::find_if(variables.begin(), variables.end(), same);
    if (old != variables.end())
      old->second = std::move(value);
    else
      variables.emplace_back(name, std::move(value));
  };
  try {
    for (const auto& [name, token] : special_) set(name, jinja::Value::string(token));
    set("documents", jinja::Value::none());
    for (const auto& [name, value] : options.variables.items()) set(name, jinja::Value::from_json(value));
    Json list = Json::array();
    for (const Json& message : messages) list.push_back(template_message(message));
    set("messages", jinja::Value::from_json(list));
    set("tools", jinja::Value::from_json(tools));
    set("add_generation_prompt", jinja::Value::boolean(options.add_generation_prompt));
  } catch (const jinja::TemplateFault& problem) {
    base::fail_user("conversation: {}", problem.what());
  }
  return template_.render(variables, options.wall_seconds, options.spans);
}

}  // namespace quintet::chat
