// Pre-tokenizers: cut text into the words that the model turns into tokens one by one.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "tokenizer/word_patterns.h"

namespace quintet::tokenizer {

// A reference to a callable, for callbacks that do not outlive the call: without allocation, one indirect
// call.
class WordSink {
 public:
  template <class F>
  WordSink(const F& f)  // NOLINT(google-explicit-constructor): lambdas are passed as they are
      : object_(&f), call_([](const void* object, std::string_view word, bool first) {
          (*static_cast<const F*>(object))(word, first);
        }) {}
  void operator()(std::string_view word, bool first) const { call_(object_, word, first); }

 private:
  const void* object_;
  void (*call_)(const void*, std::string_view, bool);
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // Passes the words of valid UTF-8 to `sink`, in order, none of them empty. `first`: the text begins the
  // input, which matters to those that put a mark before the first word.
  virtual void split(std::string_view text, bool first, WordSink sink) const = 0;
  // The pattern, where splitting by it is all that split() does; null: more, or something else.
  virtual const WordPattern* pattern() const { return nullptr; }
  // Whether split() passes every text on as it is.
  virtual bool passes_all() const { return false; }
};

// From the "pre_tokenizer" of a tokenizer.json; null for null. A type or behaviour that is not known is a
// UserError. ByteLevel, which must come last, sets `byte_level`: files then spell each byte of a token as a
// visible character; the vocabulary is translated back to bytes once, so that text need not be translated
// ever.
std::unique_ptr<PreTokenizer> make_pre_tokenizer(const nlohmann::json& description, bool& byte_level);
std::unique_ptr<PreTokenizer> make_pre_tokenizer(const WordPattern& pattern);

}  // namespace quintet::tokenizer
