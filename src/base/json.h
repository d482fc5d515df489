// Text of JSON values: the one layout that all files and --json outputs share.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace quintet::base {

// Objects and arrays nested less than `levels` deep are spread over lines with an indent of two; deeper ones
// take one line, with a space after each comma and colon. Floats read back bit-equal, the sign of zero
// included; non-finite ones become null. Bytes that are not valid UTF-8 become U+FFFD.
std::string json_text(const nlohmann::ordered_json& value, int levels = 0);

// How deep objects and arrays of a file may nest. What copies, compares or prints a value calls itself once
// per level, and nothing that people write comes near.
inline constexpr int kJsonDepth = 256;
// Whether some value of the text is in more than kJsonDepth others, as far as the text is JSON.
bool nests_too_deep(std::string_view json);
// A discarded value for text that is not JSON, or nests too deep. For everything that comes from outside.
nlohmann::json parse_json(std::string_view text);
nlohmann::ordered_json parse_ordered_json(std::string_view text);
// Why such a text was discarded.
std::string json_fault(std::string_view text);

}  // namespace quintet::base
