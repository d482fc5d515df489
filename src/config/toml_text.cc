#include "config/toml_text.h"

#include <fmt/format.h>

#include <cstdint>

namespace quintet::config {

std::string toml_text(std::string_view text) {
  std::string out = "\"";
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    const auto next = static_cast<uint8_t>(i + 1 < text.size() ? text[i + 1] : 0);
    if (byte == '"' || byte == '\\')
      out += fmt::format("\\{}", text[i]);
    else if (byte < 0x20 || byte == 0x7F)
      out += fmt::format("\\u{:04X}", byte);
    else if (byte == 0xC2 && next >= 0x80 && next < 0xA0)  // U+0080 to U+009F
      out += fmt::format("\\u{:04X}", next), ++i;
    else
      out += text[i];
  }
  return out + "\"";
}

}  // namespace quintet::config
