// Text of JSON values: the one layout that all files and --json outputs share.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace quintet::base {

// Objects and arrays nested less than `levels` deep are spread over lines with an indent of two; deeper ones
// take one line, with a space after each comma and colon. Floats read back bit-equal, the sign of zero
// included; non-finite ones become null. Bytes that are not valid UTF-8 become U+FFFD.
std::string json_text(const nlohmann::ordered_json& value, int levels = 0);

}  // namespace quintet::base
