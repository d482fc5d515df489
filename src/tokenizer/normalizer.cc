#include "tokenizer/normalizer.h"

#include <utf8proc.h>

#include <cstdlib>
#include <optional>
#include <vector>

#include "tokenizer/charsmap.h"
#include "tokenizer/json_field.h"
#include "tokenizer/regex.h"
#include "tokenizer/unicode.h"

namespace quintet::tokenizer {
namespace {

// utf8proc 2.8 drops this character after a syllable that has no trailing consonant, although it is none: the
// trailing consonants begin after it. It is a starter that never changes, so a text can be cut around it.
constexpr char32_t kHangulTrailBase = 0x11A7;

// One of Unicode's four normal forms.
class NormalForm final : public Normalizer {
 public:
  NormalForm(bool compose, bool compatible)
      : options_(static_cast<utf8proc_option_t>(UTF8PROC_STABLE |
                                                (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                                                (compatible ? UTF8PROC_COMPAT : 0))) {}
  void apply(std::string& text) const override {
    bool ascii = true;
    for (const char c : text) ascii = ascii && static_cast<uint8_t>(c) < 0x80;
    if (ascii) return;
    std::string result;
    const char* from = text.data();
    for (const char* at = from; at != text.data() + text.size();) {
      const char* here = at;
      const char32_t code = next_code(at);
      if (!is_undecomposed(code) && code != kHangulTrailBase) continue;
      append({from, static_cast<size_t>(here - from)}, result);
      result.append(here, static_cast<size_t>(at - here));
      from = at;
    }
    append({from, static_cast<size_t>(text.data() + text.size() - from)}, result);
    text = std::move(result);
  }

 private:
  void append(std::string_view part, std::string& result) const {
    if (part.empty()) return;
    utf8proc_uint8_t* normal = nullptr;
    const auto length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(part.data()),
                                     static_cast<utf8proc_ssize_t>(part.size()), &normal, options_);
    if (length < 0) base::fail_user("cannot normalise the text: {}", utf8proc_errmsg(length));
    result.append(reinterpret_cast<const char*>(normal), static_cast<size_t>(length));
    std::free(normal);
  }
  utf8proc_option_t options_;
};

// Rewrites a text character by character.
template <class Each>
void rewrite(std::string& text, Each&& each) {
  std::string result;
  result.reserve(text.size());
  for (const char* at = text.data(); at != text.data() + text.size();) each(next_code(at), result);
  text = std::move(result);
}

void lower(char32_t code, std::string& result) {
  if (code == 0x130) {  // the only letter whose small form is two characters
    result += "i\u0307";
  } else {
    append_utf8(small_letter(code), result);
  }
}

class Lowercase final : public Normalizer {
 public:
  void apply(std::string& text) const override { rewrite(text, lower); }
};

class StripAccents final : public Normalizer {
 public:
  void apply(std::string& text) const override {
    rewrite(text, [](char32_t code, std::string& result) {
      if (!is_mark(code)) append_utf8(code, result);
    });
  }
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void apply(std::string& text) const override {
    size_t begin = 0, end = text.size();
    const auto space_at = [&](size_t at) {
      const char* p = text.data() + at;
      return char_class(next_code(p)) & kSpace;
    };
    while (left_ && begin < end && space_at(begin)) begin += static_cast<size_t>(utf8_length(text[begin]));
    while (right_ && begin < end) {
      const size_t last = last_char(std::string_view(text).substr(0, end));
      if (!space_at(last)) break;
      end = last;
    }
    text = text.substr(begin, end - begin);
  }

 private:
  bool left_, right_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  void apply(std::string& text) const override {
    if (!text.empty()) text.insert(0, prefix_);
  }

 private:
  std::string prefix_;
};

class Replace final : public Normalizer {
 public:
  Replace(const JsonPattern& pattern, std::string content) : content_(std::move(content)) {
    if (pattern.regex) {
      regex_.emplace(pattern.text);
    } else {
      literal_ = pattern.text;
    }
  }
  void apply(std::string& text) const override {
    std::string result;
    size_t copied = 0;
    for (size_t from = 0; from <= text.size();) {
      size_t begin = 0, end = 0;
      if (regex_) {
        const auto match = regex_->find(text, from);
        begin = match.begin, end = match.end;
      } else {
        begin = literal_.empty() ? std::string::npos : text.find(literal_, from);
        end = begin + literal_.size();
      }
      if (begin == std::string::npos) break;
      if (end == begin) {
        from = begin < text.size() ? begin + static_cast<size_t>(utf8_length(text[begin])) : text.size() + 1;
        continue;
      }
      result.append(text, copied, begin - copied).append(content_);
      copied = from = end;
    }
    if (copied == 0) return;
    result.append(text, copied);
    text = std::move(result);
  }

 private:
  std::optional<Regex> regex_;
  std::string literal_, content_;
};

// SentencePiece's rules of old: controls disappear, exotic spaces become spaces.
class Nmt final : public Normalizer {
 public:
  void apply(std::string& text) const override {
    rewrite(text, [](char32_t c, std::string& result) {
      if ((c >= 0x1 && c <= 0x8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F ||
          c == 0x9F)
        return;
      const bool space = c == 0x9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 ||
                         (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                         c == 0xFEFF || c == 0xFFFD;
      append_utf8(space ? U' ' : c, result);
    });
  }
};

bool is_chinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

class Bert final : public Normalizer {
 public:
  Bert(bool clean, bool chinese, bool accents, bool lowercase)
      : clean_(clean), chinese_(chinese), accents_(accents), lowercase_(lowercase) {}
  void apply(std::string& text) const override {
    if (clean_) rewrite(text, cleaned);
    if (chinese_)
      rewrite(text, [](char32_t code, std::string& result) {
        const bool apart = is_chinese(code);
        if (apart) result.push_back(' ');
        append_utf8(code, result);
        if (apart) result.push_back(' ');
      });
    if (accents_) {
      NormalForm(false, false).apply(text);
      rewrite(text, [](char32_t code, std::string& result) {
        if (!is_nonspacing_mark(code)) append_utf8(code, result);
      });
    }
    if (lowercase_) rewrite(text, lower);
  }

 private:
  static void cleaned(char32_t code, std::string& result) {
    if (code == 0 || code == 0xFFFD || is_control(code)) return;
    append_utf8(char_class(code) & kSpace ? U' ' : code, result);
  }
  bool clean_, chinese_, accents_, lowercase_;
};

class Precompiled final : public Normalizer {
 public:
  explicit Precompiled(const std::string& base64) : map_(base64) {}
  void apply(std::string& text) const override { map_.apply(text); }

 private:
  CharsMap map_;
};

class NormalizerChain final : public Normalizer {
 public:
  std::vector<std::unique_ptr<Normalizer>> steps;
  void apply(std::string& text) const override {
    for (const auto& step : steps) step->apply(text);
  }
};

}  // namespace

std::unique_ptr<Normalizer> make_normalizer(const Json& description, bool& byte_level) {
  if (description.is_null()) return nullptr;
  const std::string where = "normalizer";
  const auto type = json_field<std::string>(description, "type", where);
  if (type == "Sequence") {
    auto chain = std::make_unique<NormalizerChain>();
    for (const Json& step : json_list(description, "normalizers", where)) {
      if (byte_level) base::fail_user("tokenizer file: a normalizer after ByteLevel is not supported");
      if (auto made = make_normalizer(step, byte_level)) chain->steps.push_back(std::move(made));
    }
    return chain;
  }
  if (type == "ByteLevel") {
    byte_level = true;
    return nullptr;
  }
  if (type == "NFC") return std::make_unique<NormalForm>(true, false);
  if (type == "NFD") return std::make_unique<NormalForm>(false, false);
  if (type == "NFKC") return std::make_unique<NormalForm>(true, true);
  if (type == "NFKD") return std::make_unique<NormalForm>(false, true);
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "StripAccents") return std::make_unique<StripAccents>();
  if (type == "Nmt") return std::make_unique<Nmt>();
  if (type == "Strip")
    return std::make_unique<Strip>(json_field_or(description, "strip_left", true, where),
                                   json_field_or(description, "strip_right", true, where));
  if (type == "Prepend")
    return std::make_unique<Prepend>(json_field<std::string>(description, "prepend", where));
  if (type == "Replace")
    return std::make_unique<Replace>(json_pattern(description, where),
                                     json_field<std::string>(description, "content", where));
  if (type == "Precompiled")
    return std::make_unique<Precompiled>(json_field<std::string>(description, "precompiled_charsmap", where));
  if (type == "BertNormalizer") {
    const bool lowercase = json_field_or(description, "lowercase", true, where);
    return std::make_unique<Bert>(json_field_or(description, "clean_text", true, where),
                                  json_field_or(description, "handle_chinese_chars", true, where),
                                  json_field_or(description, "strip_accents", lowercase, where), lowercase);
  }
  base::fail_user(
      "tokenizer file: the normalizer '{}' is not supported; known: NFC, NFD, NFKC, NFKD, Lowercase, Strip, "
      "StripAccents, Replace, Prepend, Nmt, Precompiled, BertNormalizer, ByteLevel, Sequence",
      base::printable(type));
}

}  // namespace quintet::tokenizer
