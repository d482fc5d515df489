// Chat templates: conversations as text.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "chat/jinja/template.h"

namespace quintet::chat {

using Json = nlohmann::ordered_json;  // the order of keys shows in what tojson prints
using jinja::Rendering;
using jinja::Span;

struct RenderOptions {
  bool add_generation_prompt = false;
  bool spans = false;               // generation blocks must have a place in the text
  Json variables = Json::object();  // further variables of templates: enable_thinking, documents, ...
  int64_t wall_seconds = 0;         // what strftime_now sees; negative: it is refused
};

// What tokenizer.apply_chat_template(messages, tools, tokenize=False) of transformers gives: keys with
// null are left out of messages, and reasoning is there under the names that templates read.
class ChatTemplate {
 public:
  // `special`: the tokens that templates print, such as {"bos_token", "<s>"}.
  ChatTemplate(std::string_view source, std::vector<std::pair<std::string, std::string>> special);

  // `messages` is a list of objects; `tools` a list or null. UserError with line and column of the
  // template.
  Rendering render(const Json& messages, const Json& tools, const RenderOptions& options) const;
  bool has_generation() const { return template_.has_generation(); }
  const std::string& source() const { return source_; }

 private:
  std::string source_;
  jinja::Template template_;
  std::vector<std::pair<std::string, std::string>> special_;
};

}  // namespace quintet::chat
