// Keys and words that later versions will know. They are named so that they are refused for what they are,
// and not as misspellings; the value that asks for nothing is accepted already.
#pragma once

#include <span>
#include <string_view>

namespace quintet::config {

struct LaterKey {
  const char* key;
  std::string_view neutral;  // as TOML text; empty when every value asks for something
};

std::span<const LaterKey> later_keys();

// Whether `word` is a value that the key will take in a later version.
bool is_later_word(std::string_view key, std::string_view word);

}  // namespace quintet::config
