// The text of tokens that arrive one by one.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace quintet::generate {

// Text becomes visible when no later token can change it: a character may take several tokens, the first word
// may have no space before it, and the beginning of a stop string may turn out to be one.
class TextStream {
 public:
  // `prompt` is what the text continues; it is not part of the text.
  TextStream(const tokenizer::Tokenizer& tokenizer, std::span<const int32_t> prompt,
             std::vector<std::string> stops);

  // Returns what became visible. After a stop string nothing does, and stopped() holds.
  std::string add(int32_t id);
  // The end of the text: what was held back.
  std::string finish();
  bool stopped() const { return stopped_; }
  const std::string& text() const { return text_; }  // visible so far

 private:
  std::string show(bool all);

  const tokenizer::Tokenizer& tokenizer_;
  const std::vector<std::string> stops_;
  // Tokens from a few before the first one whose text is not known yet; those before `known_` are context.
  std::vector<int32_t> ids_;
  size_t known_;
  std::string text_, held_;  // visible; may be the beginning of a stop string
  bool stopped_ = false;
};

}  // namespace quintet::generate
