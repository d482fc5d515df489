#include "base/printable.h"

#include <fmt/format.h>

#include <cstdint>

namespace quintet::base {
namespace {

// The length of the valid UTF-8 sequence at the start of `text`; 0 when there is none. `cut` is set when the
// text ends within one.
size_t utf8_length(std::string_view text, bool& cut) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  const size_t length = first < 0x80                    ? 1
                        : first >= 0xC2 && first < 0xE0 ? 2
                        : first >= 0xE0 && first < 0xF0 ? 3
                        : first >= 0xF0 && first < 0xF5 ? 4
                                                        : 0;
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size()) {
      cut = true;
      return 0;
    }
    if ((byte(i) & 0xC0) != 0x80) return 0;
    // Not overlong forms, which some terminals decode, surrogates, or what follows U+10FFFF.
    if (i == 1 && ((first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) > 0x9F) ||
                   (first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) > 0x8F)))
      return 0;
  }
  return length;
}

bool is_control(std::string_view character) {
  const auto first = static_cast<uint8_t>(character[0]);
  if (character.size() == 1) return (first < 0x20 && first != '\n' && first != '\t') || first == 0x7F;
  const auto second = static_cast<uint8_t>(character[1]);
  if (character.size() == 2) return first == 0xC2 && second < 0xA0;
  if (character.size() != 3 || first != 0xE2) return false;
  const auto third = static_cast<uint8_t>(character[2]);
  return (second == 0x80 && third >= 0xAA && third <= 0xAE) ||
         (second == 0x81 && third >= 0xA6 && third <= 0xA9);
}

void escape(std::string_view bytes, std::string& out) {
  for (const char c : bytes) out += fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
}

}  // namespace

std::string PrintableStream::add(std::string_view piece) {
  held_ += piece;
  std::string_view rest = held_;
  std::string out;
  while (!rest.empty()) {
    bool cut = false;
    const size_t length = utf8_length(rest, cut);
    if (cut) break;
    const std::string_view character = rest.substr(0, length == 0 ? 1 : length);
    if (length == 0 || is_control(character))
      escape(character, out);
    else
      out += character;
    rest.remove_prefix(character.size());
  }
  held_ = std::string(rest);
  return out;
}

std::string PrintableStream::finish() {
  std::string out;
  escape(held_, out);
  held_.clear();
  return out;
}

std::string printable(std::string_view text) {
  PrintableStream stream;
  std::string out = stream.add(text);
  return out + stream.finish();
}

}  // namespace quintet::base
