// Keys and words that are not supported yet, or that belong elsewhere. Listing them gives a specific message
// instead of a spelling suggestion; a value that requests nothing is accepted already.
#pragma once

#include <span>
#include <string_view>

namespace quintet::config {

struct UnsupportedKey {
  const char* key;
  std::string_view neutral;  // as TOML text; empty when there is no neutral value
};

std::span<const UnsupportedKey> unsupported_keys();

// A word that a key does not accept, with the reason.
struct RefusedWord {
  std::string_view key;  // or a prefix of several keys, with the dot
  std::string_view word;
  std::string_view why;      // follows the word in the message
  std::string_view instead;  // empty: the default of the key
  bool later = true;         // a later version will accept it
};

// Null for any other word.
const RefusedWord* find_refused_word(std::string_view key, std::string_view word);

// What another system's name for a key is called here: "hidden_size", "training.dim" or "--hidden-size" ->
// "model.embed". Empty for names that no listed system uses.
std::string_view key_elsewhere(std::string_view key);

// What another system's value of one of our keys is called here: ("parallel.cp_method", "p2p") -> "ring".
std::string_view word_elsewhere(std::string_view key, std::string_view word);

// What to do about another system's name that has no key here: "compile" -> "leave it out: every recipe is
// compiled". Empty for all others.
std::string_view answer_elsewhere(std::string_view key);

}  // namespace quintet::config
