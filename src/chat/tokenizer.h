// A tokenizer's folder as transformers reads it: tokenizer.json, tokenizer_config.json with special
// tokens and a chat template, chat_template.jinja, and further templates by name.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "chat/template.h"
#include "tokenizer/tokenizer.h"

namespace quintet::chat {

class ChatTokenizer {
 public:
  // `path`: a folder or file as load_tokenizer takes it. `chosen`: the name of one of the folder's
  // templates, the path of a file, or the name of a built-in template; empty: transformers' choice.
  // UserError for a template that is not valid.
  ChatTokenizer(const std::string& path, const std::string& chosen);

  const tokenizer::Tokenizer& tokens() const { return *tokenizer_; }
  // The template for a conversation with or without tools. UserError if there is none.
  const ChatTemplate& chat_template(bool with_tools) const;
  bool has_template() const { return !templates_.empty(); }
  uint64_t templates_hash() const;  // of the names and sources of all templates
  // The text of a special token such as "eos_token"; empty if there is none.
  std::string special(std::string_view name) const;
  // Whether a token may end a turn: a special one, or the end-of-text token.
  bool ends_turn(int32_t id) const;

 private:
  std::string path_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  std::vector<std::pair<std::string, std::string>> special_;
  std::vector<std::pair<std::string, ChatTemplate>> templates_;
  std::optional<int32_t> eos_;
};

}  // namespace quintet::chat
