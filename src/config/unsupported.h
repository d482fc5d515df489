// Keys and words that later versions will know, or that are said elsewhere. They are named so that they are
// refused for what they are, and not as misspellings; the value that asks for nothing is accepted already.
#pragma once

#include <span>
#include <string_view>

namespace quintet::config {

struct UnsupportedKey {
  const char* key;
  std::string_view neutral;  // as TOML text; empty when every value asks for something
};

std::span<const UnsupportedKey> unsupported_keys();

// A word that a key does not take, and why.
struct RefusedWord {
  std::string_view key;  // or the beginning of several, with the dot
  std::string_view word;
  std::string_view why;      // what follows the word in a message
  std::string_view instead;  // empty: the value that the key has without it
  bool later = true;         // a later version will take it
};

// Null for every other word.
const RefusedWord* find_refused_word(std::string_view key, std::string_view word);

}  // namespace quintet::config
