// Tokens of a template, with the white space rules of trim_blocks and lstrip_blocks, as transformers sets
// them.
#pragma once

#include <string>
#include <vector>

#include "chat/jinja/value.h"

namespace quintet::chat::jinja {

enum class TokenType : uint8_t {
  Data,  // text outside tags
  VariableBegin,
  VariableEnd,
  BlockBegin,
  BlockEnd,
  Name,
  String,
  Integer,
  Float,
  Operator,  // its text is the operator
  End,
};

struct Token {
  TokenType type = TokenType::End;
  std::string text;  // of data, names and operators; the value of strings
  Value number;
  uint32_t at = 0;  // byte of the source

  bool is_name(std::string_view name) const { return type == TokenType::Name && text == name; }
  bool is_operator(std::string_view op) const { return type == TokenType::Operator && text == op; }
};

// What Jinja makes of a template before it reads it: valid UTF-8, line breaks as \n, the last one left out.
std::string normalized_source(std::string_view source);
// "line 3, column 7" of a byte of the source, 1-based.
std::string position_text(std::string_view source, uint32_t at);
[[noreturn]] void fail_at(std::string_view source, uint32_t at, std::string_view message);

std::vector<Token> tokenize(std::string_view source);  // a normalised one

}  // namespace quintet::chat::jinja
