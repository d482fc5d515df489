#include "tokenizer/added_tokens.h"

#include <algorithm>

#include "tokenizer/unicode.h"

namespace quintet::tokenizer {

void AddedTokenFinder::add(const AddedToken& token, std::string_view pattern) {
  if (pattern.empty()) return;
  uint32_t node = 0;
  for (const char byte : pattern) {
    uint32_t next = child(node, byte);
    if (next == 0) {
      next = static_cast<uint32_t>(nodes_.size());
      nodes_.emplace_back();
      nodes_[node].children.emplace_back(static_cast<uint8_t>(byte), next);
      if (node == 0) {
        only_first_ = nodes_[0].children.size() == 1 ? std::optional(byte) : std::nullopt;
        first_[static_cast<uint8_t>(byte)] = next;
      }
    }
    node = next;
  }
  nodes_[node].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
}

uint32_t AddedTokenFinder::child(uint32_t node, char byte) const {
  if (node == 0) return first_[static_cast<uint8_t>(byte)];
  for (const auto& [label, next] : nodes_[node].children)
    if (label == static_cast<uint8_t>(byte)) return next;
  return 0;
}

bool AddedTokenFinder::accepted(const AddedToken& token, std::string_view text, size_t begin,
                                size_t end) const {
  if (!token.single_word) return true;
  if (begin > 0) {
    const char* before = text.data() + last_char(text.substr(0, begin));
    if (is_word(next_code(before))) return false;
  }
  const char* after = text.data() + end;
  return end == text.size() || !is_word(next_code(after));
}

AddedTokenFinder::Found AddedTokenFinder::find(std::string_view text, size_t from) const {
  for (size_t at = from; at < text.size(); ++at) {
    if (only_first_) at = text.find(*only_first_, at);
    if (at == std::string_view::npos) break;
    uint32_t node = first_[static_cast<uint8_t>(text[at])];
    if (node == 0) continue;
    int32_t token = -1;
    size_t end = at;
    for (size_t i = at + 1;; ++i) {
      if (nodes_[node].token >= 0) token = nodes_[node].token, end = i;
      if (i == text.size()) break;
      node = child(node, text[i]);
      if (node == 0) break;
    }
    if (token < 0) continue;
    const AddedToken& added = tokens_[static_cast<size_t>(token)];
    if (!accepted(added, text, at, end)) {  // the search continues after it, not inside it
      at = end - 1;
      continue;
    }
    size_t begin = at;
    while (added.lstrip && begin > from) {
      const size_t last = last_char(text.substr(0, begin));
      const char* p = text.data() + last;
      if (!(char_class(next_code(p)) & kSpace)) break;
      begin = std::max(last, from);
    }
    while (added.rstrip && end < text.size()) {
      const char* p = text.data() + end;
      if (!(char_class(next_code(p)) & kSpace)) break;
      end = static_cast<size_t>(p - text.data());
    }
    return {added.id, begin, end};
  }
  return {};
}

}  // namespace quintet::tokenizer
