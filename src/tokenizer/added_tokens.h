// Tokens that are found in the text before anything else happens to it: special ones such as <|endoftext|>,
// and those that a user added.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quintet::tokenizer {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;
  bool normalized = false;              // looked for in the normalised text
  bool single_word = false;             // not inside a word
  bool lstrip = false, rstrip = false;  // takes the white space around it along
};

// Finds added tokens in texts: at each place the longest one, from left to right.
class AddedTokenFinder {
 public:
  // `patterns[i]` is what to look for, the content or its normalised form.
  void add(const AddedToken& token, std::string_view pattern);
  bool empty() const { return tokens_.empty(); }

  // The next token at or after `from`; `begin` to `end` includes white space that it takes along. id -1:
  // none.
  struct Found {
    int32_t id = -1;
    size_t begin = 0, end = 0;
  };
  Found find(std::string_view text, size_t from) const;

 private:
  struct Node {
    std::vector<std::pair<uint8_t, uint32_t>> children;
    int32_t token = -1;
  };
  uint32_t child(uint32_t node, char byte) const;  // 0: none
  bool accepted(const AddedToken& token, std::string_view text, size_t begin, size_t end) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::array<uint32_t, 256> first_{};  // the root's children
  std::optional<char> only_first_;     // the byte with which every token begins, such as '<'
};

}  // namespace quintet::tokenizer
