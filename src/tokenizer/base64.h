// Base 64, as tokenizer files use it for bytes.
#pragma once

#include <string>
#include <string_view>

namespace quintet::tokenizer {

std::string decode_base64(std::string_view text);  // UserError for a character outside the alphabet

}  // namespace quintet::tokenizer
