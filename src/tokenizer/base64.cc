#include "tokenizer/base64.h"

#include <cstdint>

#include "base/error.h"

namespace quintet::tokenizer {

std::string decode_base64(std::string_view text) {
  std::string bytes;
  uint32_t bits = 0;
  int held = 0;
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  for (const char c : text) {
    uint32_t value = 0;
    if (c >= 'A' && c <= 'Z')
      value = static_cast<uint32_t>(c - 'A');
    else if (c >= 'a' && c <= 'z')
      value = static_cast<uint32_t>(c - 'a') + 26;
    else if (c >= '0' && c <= '9')
      value = static_cast<uint32_t>(c - '0') + 52;
    else if (c == '+')
      value = 62;
    else if (c == '/')
      value = 63;
    else
      base::fail_user("tokenizer file: byte {} is not a character of base 64",
                      static_cast<int>(static_cast<uint8_t>(c)));
    bits = bits << 6 | value;
    held += 6;
    if (held >= 8) {
      held -= 8;
      bytes.push_back(static_cast<char>(bits >> held & 0xFF));
    }
  }
  return bytes;
}

}  // namespace quintet::tokenizer
