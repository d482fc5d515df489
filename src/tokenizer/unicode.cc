#include "tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "tokenizer/code_set.h"

namespace quintet::tokenizer {
namespace {

using enum Category;
constexpr CategoryRun kRanges[] = {
#include "tokenizer/unicode_ranges.inc"
};

#include "tokenizer/unicode_exceptions.inc"

template <size_t N>
bool listed(const CodeRun (&runs)[N], char32_t code) {
  const auto* after = std::upper_bound(std::begin(runs), std::end(runs), code,
                                       [](char32_t c, const CodeRun& run) { return c < run.first; });
  return after != std::begin(runs) && code <= (after - 1)->last;
}

bool is_white_space(char32_t code) {
  return (code >= 0x9 && code <= 0xD) || code == 0x20 || code == 0x85 || code == 0xA0 || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F ||
         code == 0x205F || code == 0x3000;
}

uint8_t class_of(Category category) {
  switch (category) {
    case Lu:
    case Lt:
      return kLetter | kUpper;
    case Ll:
      return kLetter | kLower;
    case Lm:
    case Lo:
      return kLetter | kUpper | kLower;
    case Mn:
    case Mc:
    case Me:
      return kMark | kUpper | kLower;
    case Nd:
    case Nl:
    case No:
      return kNumber;
    case Pc:
    case Pd:
    case Ps:
    case Pe:
    case Pi:
    case Pf:
    case Po:
      return kPunct;
    case Sm:
    case Sc:
    case Sk:
    case So:
      return kSymbol;
    default:
      return 0;
  }
}

const std::array<uint8_t, 0x110000>& all_classes() {
  static const auto classes = [] {
    auto table = std::make_unique<std::array<uint8_t, 0x110000>>();
    for (size_t i = 0; i < std::size(kRanges); ++i) {
      const size_t end = i + 1 < std::size(kRanges) ? kRanges[i + 1].begin : table->size();
      std::memset(table->data() + kRanges[i].begin, class_of(kRanges[i].category), end - kRanges[i].begin);
    }
    for (char32_t code = 0; code <= 0x3000; ++code)
      if (is_white_space(code)) (*table)[code] |= kSpace;
    return table;
  }();
  return *classes;
}

// The bytes of the valid character at the start of `text`; 0 when it is invalid, and then `bad` is the
// length of the maximal part that could have begun one (at least 1).
size_t valid_char(std::string_view text, size_t& bad) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  bad = 1;
  if (lead < 0x80) return 1;
  size_t length = 0;
  uint8_t low = 0x80,
          high = 0xBF;  // of the second byte: no overlong forms, no surrogates, nothing past U+10FFFF
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return 0;
  }
  for (size_t i = 1; i < length; ++i) {
    if (i >= text.size() || byte(i) < low || byte(i) > high) {
      bad = i;
      return 0;
    }
    low = 0x80, high = 0xBF;
  }
  return length;
}

// The length of the longest valid prefix; eight ASCII bytes at a time.
size_t valid_prefix(std::string_view text) {
  size_t at = 0, bad = 0;
  while (at < text.size()) {
    uint64_t block = 0;
    if (at + 8 <= text.size()) {
      std::memcpy(&block, text.data() + at, 8);
      if ((block & 0x8080808080808080u) == 0) {
        at += 8;
        continue;
      }
    }
    const size_t length = valid_char(text.substr(at), bad);
    if (length == 0) return at;
    at += length;
  }
  return at;
}

}  // namespace

const std::array<uint8_t, 0x110000>& detail::kClasses = all_classes();

std::span<const CategoryRun> category_runs() { return kRanges; }

Category category(char32_t code) {
  const auto after = std::upper_bound(std::begin(kRanges), std::end(kRanges), code,
                                      [](char32_t c, const CategoryRun& run) { return c < run.begin; });
  return (after - 1)->category;
}

bool is_word(char32_t code) {
  if (char_class(code) & (kLetter | kMark)) return true;
  const Category kind = category(code);
  return kind == Nd || kind == Nl || kind == Pc || code == 0x200C || code == 0x200D ||
         (code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F149) ||
         (code >= 0x1F150 && code <= 0x1F169) || (code >= 0x1F170 && code <= 0x1F189);
}

bool is_punctuation(char32_t code) {
  if (code < 0x80)
    return (code > 0x20 && code < 0x30) || (code > 0x39 && code < 0x41) || (code > 0x5A && code < 0x61) ||
           (code > 0x7A && code < 0x7F);
  return ((char_class(code) & kPunct) != 0) != listed(kPunctuationExceptions, code);
}

bool is_mark(char32_t code) { return ((char_class(code) & kMark) != 0) != listed(kMarkExceptions, code); }

bool is_nonspacing_mark(char32_t code) {
  return (category(code) == Mn) != listed(kNonspacingMarkExceptions, code);
}

bool is_control(char32_t code) {
  if (code == '\t' || code == '\n' || code == '\r') return false;
  const Category kind = category(code);
  return (kind == Cc || kind == Cf || kind == Co) != listed(kControlExceptions, code);
}

bool is_undecomposed(char32_t code) { return listed(kUndecomposedExceptions, code); }

char32_t small_letter(char32_t code) {
  if (code < 0x80) return code >= 'A' && code <= 'Z' ? code + 32 : code;
  for (const auto& [capital, small] : kLowerExceptions)
    if (code == capital) return small;
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
}

void append_utf8(char32_t code, std::string& text) {
  const auto put = [&](uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6), put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12), put(0x80 | (code >> 6 & 0x3F)), put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18), put(0x80 | (code >> 12 & 0x3F)), put(0x80 | (code >> 6 & 0x3F)),
        put(0x80 | (code & 0x3F));
  }
}

std::string_view valid_utf8(std::string_view text, std::string& storage) {
  size_t valid = valid_prefix(text);
  if (valid == text.size()) return text;
  storage.clear();
  while (true) {
    storage.append(text.substr(0, valid));
    text.remove_prefix(valid);
    if (text.empty()) return storage;
    size_t bad = 0;
    valid_char(text, bad);
    storage.append("\xEF\xBF\xBD");
    text.remove_prefix(bad);
    valid = valid_prefix(text);
  }
}

}  // namespace quintet::tokenizer
