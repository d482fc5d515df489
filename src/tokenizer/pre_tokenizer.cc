#include "tokenizer/pre_tokenizer.h"

#include <optional>
#include <string>
#include <vector>

#include "tokenizer/json_field.h"
#include "tokenizer/regex.h"
#include "tokenizer/unicode.h"

namespace quintet::tokenizer {
namespace {

// What becomes of the matches of a splitting pattern.
enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

Behavior behavior_of(const Json& description, std::string_view where) {
  const auto name = json_field<std::string>(description, "behavior", where);
  if (name == "Removed") return Behavior::removed;
  if (name == "Isolated") return Behavior::isolated;
  if (name == "MergedWithPrevious") return Behavior::merged_with_previous;
  if (name == "MergedWithNext") return Behavior::merged_with_next;
  if (name == "Contiguous") return Behavior::contiguous;
  base::fail_user(
      "tokenizer file: {} has the behavior '{}'; known: Removed, Isolated, MergedWithPrevious, "
      "MergedWithNext, Contiguous",
      where, base::printable(name));
}

// Cuts of a text, delivered one by one as matches and the parts between them, and joined as the behaviour
// says.
class Joiner {
 public:
  Joiner(std::string_view text, bool first, Behavior behavior, WordSink sink)
      : text_(text), first_(first), behavior_(behavior), sink_(sink) {}

  void part(size_t begin, size_t end, bool match) {
    if (begin == end) return;
    switch (behavior_) {
      case Behavior::removed:
        if (!match) emit(begin, end);
        return;
      case Behavior::isolated:
        emit(begin, end);
        return;
      case Behavior::merged_with_previous:
        join(begin, end, held_ && match && !held_match_, match);
        return;
      case Behavior::merged_with_next:
        join(begin, end, held_ && held_match_ && !match, match);
        return;
      case Behavior::contiguous:
        join(begin, end, held_ && held_match_ == match, match);
        return;
    }
  }
  void finish() {
    if (held_) emit(begin_, end_);
  }

 private:
  // Adds the part to what is held back, or lets that go and holds the part.
  void join(size_t begin, size_t end, bool together, bool match) {
    if (!together) {
      if (held_) emit(begin_, end_);
      begin_ = begin;
    }
    end_ = end;
    held_ = true;
    held_match_ = match;
  }
  void emit(size_t begin, size_t end) { sink_(text_.substr(begin, end - begin), first_ && begin == 0); }

  std::string_view text_;
  bool first_;
  Behavior behavior_;
  WordSink sink_;
  size_t begin_ = 0, end_ = 0;
  bool held_ = false, held_match_ = false;
};

// Splits by the characters that a predicate selects; each is a match of its own.
template <class Matches>
void split_chars(std::string_view text, bool first, Behavior behavior, WordSink sink, Matches&& matches) {
  Joiner joiner(text, first, behavior, sink);
  size_t from = 0;
  const char* const begin = text.data();
  for (const char* at = begin; at != begin + text.size();) {
    const auto here = static_cast<size_t>(at - begin);
    if (!matches(next_code(at))) continue;
    joiner.part(from, here, false);
    from = static_cast<size_t>(at - begin);
    joiner.part(here, from, true);
  }
  joiner.part(from, text.size(), false);
  joiner.finish();
}

// The pieces of a known pattern, which has no gaps.
class KnownPattern final : public PreTokenizer {
 public:
  explicit KnownPattern(const WordPattern& pattern) : pattern_(pattern) {}
  void split(std::string_view text, bool first, WordSink sink) const override {
    while (!text.empty()) {
      const size_t length = first_piece(pattern_, text);
      sink(text.substr(0, length), first);
      text.remove_prefix(length);
      first = false;
    }
  }
  const WordPattern* pattern() const override { return &pattern_; }

 private:
  WordPattern pattern_;
};

class Split final : public PreTokenizer {
 public:
  Split(const JsonPattern& pattern, Behavior behavior, bool invert) : behavior_(behavior), invert_(invert) {
    if (pattern.regex) {
      regex_.emplace(pattern.text);
    } else {
      literal_ = pattern.text;
    }
  }
  void split(std::string_view text, bool first, WordSink sink) const override {
    Joiner joiner(text, first, behavior_, sink);
    size_t done = 0;
    for (size_t from = 0; from < text.size();) {
      size_t begin = 0, end = 0;
      if (regex_) {
        const auto match = regex_->find(text, from);
        begin = match.begin, end = match.end;
      } else {
        begin = literal_.empty() ? std::string_view::npos : text.find(literal_, from);
        end = begin + literal_.size();
      }
      if (begin == std::string_view::npos) break;
      if (begin == end) {  // an empty match cuts but is not a piece
        from = begin + (begin < text.size() ? static_cast<size_t>(utf8_length(text[begin])) : 1);
        joiner.part(done, begin, invert_);
        done = begin;
        continue;
      }
      joiner.part(done, begin, invert_);
      joiner.part(begin, end, !invert_);
      done = from = end;
    }
    joiner.part(done, text.size(), invert_);
    joiner.finish();
  }

 private:
  Behavior behavior_;
  bool invert_;
  std::optional<Regex> regex_;
  std::string literal_;
};

// A space before each text, then GPT-2's pattern, both as options; the rest of ByteLevel is in the
// vocabulary.
class ByteLevel final : public PreTokenizer {
 public:
  ByteLevel(bool prefix_space, bool words)
      : prefix_space_(prefix_space), words_(words), pattern_(gpt2_pattern()) {}
  void split(std::string_view text, bool first, WordSink sink) const override {
    std::string with_space;
    if (prefix_space_ && !text.empty() && text[0] != ' ') text = with_space = " " + std::string(text);
    if (words_) {
      pattern_.split(text, first, sink);
    } else if (!text.empty()) {
      sink(text, first);
    }
  }

  const WordPattern* pattern() const override {
    return words_ && !prefix_space_ ? pattern_.pattern() : nullptr;
  }
  bool passes_all() const override { return !words_ && !prefix_space_; }

 private:
  bool prefix_space_, words_;
  KnownPattern pattern_;
};

// Spaces become a visible mark, which begins a word; one may be put before the text.
class Metaspace final : public PreTokenizer {
 public:
  enum class Prepend { first, never, always };
  Metaspace(std::string mark, Prepend prepend, bool split)
      : mark_(std::move(mark)), prepend_(prepend), split_(split) {}
  void split(std::string_view text, bool first, WordSink sink) const override {
    std::string marked;
    marked.reserve(text.size() + 16);
    for (const char c : text) c == ' ' ? void(marked += mark_) : marked.push_back(c);
    const bool prepend = prepend_ == Prepend::always || (prepend_ == Prepend::first && first);
    if (prepend && !marked.starts_with(mark_)) marked.insert(0, mark_);
    if (!split_) {
      if (!marked.empty()) sink(std::string_view(marked), first);
      return;
    }
    for (size_t begin = 0; begin < marked.size();) {
      const size_t end = std::min(marked.find(mark_, begin + 1), marked.size());
      sink(std::string_view(marked).substr(begin, end - begin), first && begin == 0);
      begin = end;
    }
  }

 private:
  std::string mark_;
  Prepend prepend_;
  bool split_;
};

// Words and runs of other characters; white space disappears.
class Whitespace final : public PreTokenizer {
 public:
  void split(std::string_view text, bool first, WordSink sink) const override {
    enum { space, word, other } kind = space;
    size_t begin = 0;
    const auto emit = [&](size_t end) {
      if (kind != space && begin < end) sink(text.substr(begin, end - begin), first && begin == 0);
    };
    for (const char* at = text.data(); at != text.data() + text.size();) {
      const auto here = static_cast<size_t>(at - text.data());
      const char32_t code = next_code(at);
      const auto now = is_word(code) ? word : char_class(code) & kSpace ? space : other;
      if (now == kind) continue;
      emit(here);
      begin = here;
      kind = now;
    }
    emit(text.size());
  }
};

class WhitespaceSplit final : public PreTokenizer {
 public:
  void split(std::string_view text, bool first, WordSink sink) const override {
    split_chars(text, first, Behavior::removed, sink, [](char32_t c) { return char_class(c) & kSpace; });
  }
};

class Punctuation final : public PreTokenizer {
 public:
  explicit Punctuation(Behavior behavior) : behavior_(behavior) {}
  void split(std::string_view text, bool first, WordSink sink) const override {
    split_chars(text, first, behavior_, sink, is_punctuation);
  }

 private:
  Behavior behavior_;
};

class Digits final : public PreTokenizer {
 public:
  explicit Digits(bool single) : behavior_(single ? Behavior::isolated : Behavior::contiguous) {}
  void split(std::string_view text, bool first, WordSink sink) const override {
    split_chars(text, first, behavior_, sink, [](char32_t c) { return char_class(c) & kNumber; });
  }

 private:
  Behavior behavior_;
};

class CharDelimiter final : public PreTokenizer {
 public:
  explicit CharDelimiter(char32_t delimiter) : delimiter_(delimiter) {}
  void split(std::string_view text, bool first, WordSink sink) const override {
    split_chars(text, first, Behavior::removed, sink, [this](char32_t c) { return c == delimiter_; });
  }

 private:
  char32_t delimiter_;
};

// Each step splits what the one before it delivers.
class PreTokenizerChain final : public PreTokenizer {
 public:
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  void split(std::string_view text, bool first, WordSink sink) const override { run(0, text, first, sink); }
  const WordPattern* pattern() const override {
    const WordPattern* only = nullptr;
    for (const auto& step : steps) {
      if (step->passes_all()) continue;
      if (only != nullptr || step->pattern() == nullptr) return nullptr;
      only = step->pattern();
    }
    return only;
  }

 private:
  void run(size_t step, std::string_view text, bool first, WordSink sink) const {
    if (step == steps.size()) {
      sink(text, first);
      return;
    }
    const auto next = [&](std::string_view word, bool begins) { run(step + 1, word, begins, sink); };
    steps[step]->split(text, first, next);
  }
};

}  // namespace

std::unique_ptr<PreTokenizer> make_pre_tokenizer(const WordPattern& pattern) {
  return std::make_unique<KnownPattern>(pattern);
}

std::unique_ptr<PreTokenizer> make_pre_tokenizer(const Json& description, bool& byte_level) {
  if (description.is_null()) return nullptr;
  const std::string where = "pre_tokenizer";
  const auto type = json_field<std::string>(description, "type", where);
  if (type == "Sequence") {
    auto chain = std::make_unique<PreTokenizerChain>();
    for (const Json& step : json_list(description, "pretokenizers", where)) {
      if (byte_level) base::fail_user("tokenizer file: a pre-tokenizer after ByteLevel is not supported");
      if (auto made = make_pre_tokenizer(step, byte_level)) chain->steps.push_back(std::move(made));
    }
    if (chain->steps.size() == 1) return std::move(chain->steps[0]);
    return chain;
  }
  if (type == "ByteLevel") {
    byte_level = true;
    const bool prefix = json_field_or(description, "add_prefix_space", true, where);
    const bool words = json_field_or(description, "use_regex", true, where);
    if (!prefix && !words) return nullptr;
    return std::make_unique<ByteLevel>(prefix, words);
  }
  if (type == "Split") {
    const JsonPattern pattern = json_pattern(description, where);
    const Behavior behavior = behavior_of(description, where);
    const bool invert = json_field_or(description, "invert", false, where);
    // All of the text matches a known pattern, so its matches are all there is.
    if (const auto known = known_pattern(pattern.text);
        pattern.regex && known && (invert ? behavior == Behavior::removed : behavior == Behavior::isolated))
      return make_pre_tokenizer(*known);
    return std::make_unique<Split>(pattern, behavior, invert);
  }
  if (type == "Metaspace") {
    const auto mark = json_field_or<std::string>(description, "replacement", "\u2581", where);
    const bool old = json_field_or(description, "add_prefix_space", true, where);
    const auto scheme =
        json_field_or<std::string>(description, "prepend_scheme", old ? "always" : "never", where);
    if (scheme != "first" && scheme != "never" && scheme != "always")
      base::fail_user("tokenizer file: pre_tokenizer.prepend_scheme is '{}'; known: first, never, always",
                      base::printable(scheme));
    const auto prepend = scheme == "first"   ? Metaspace::Prepend::first
                         : scheme == "never" ? Metaspace::Prepend::never
                                             : Metaspace::Prepend::always;
    return std::make_unique<Metaspace>(mark, prepend, json_field_or(description, "split", true, where));
  }
  if (type == "Whitespace") return std::make_unique<Whitespace>();
  if (type == "WhitespaceSplit") return std::make_unique<WhitespaceSplit>();
  if (type == "BertPreTokenizer") {
    auto chain = std::make_unique<PreTokenizerChain>();
    chain->steps.push_back(std::make_unique<WhitespaceSplit>());
    chain->steps.push_back(std::make_unique<Punctuation>(Behavior::isolated));
    return chain;
  }
  if (type == "Punctuation") {
    return std::make_unique<Punctuation>(description.contains("behavior") ? behavior_of(description, where)
                                                                          : Behavior::isolated);
  }
  if (type == "Digits")
    return std::make_unique<Digits>(json_field_or(description, "individual_digits", false, where));
  if (type == "CharDelimiterSplit") {
    const auto delimiter = json_field<std::string>(description, "delimiter", where);
    if (delimiter.empty()) base::fail_user("tokenizer file: pre_tokenizer.delimiter is empty");
    const char* at = delimiter.data();
    return std::make_unique<CharDelimiter>(next_code(at));
  }
  base::fail_user(
      "tokenizer file: the pre-tokenizer '{}' is not supported; known: ByteLevel, Split, Metaspace, "
      "Whitespace, WhitespaceSplit, BertPreTokenizer, Punctuation, Digits, CharDelimiterSplit, Sequence",
      base::printable(type));
}

}  // namespace quintet::tokenizer
