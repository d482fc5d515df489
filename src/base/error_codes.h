// Codes of errors by the source file that throws them: a file has one concern, so its errors are one class.
// config/codes.h has what each code means.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace quintet::base {

struct ErrorOrigin {
  std::string_view prefix;  // of a path below src/: a file or a room; the longest one that matches counts
  std::string_view code;    // "Q2101"
};
std::span<const ErrorOrigin> error_origins();

// The code of errors thrown by this function of this source file, both as in std::source_location; empty for
// files outside Quintet's sources.
std::string_view code_of_source(std::string_view file, std::string_view function);
// `file` is a path below src/.
std::string_view code_of_origin(std::string_view file);

// The first code in a message: "Q2101" of "... [Q2101]"; empty when it has none.
std::string_view code_in(std::string_view message);

// The message with the code appended, unless it has one.
std::string with_code(const std::string& message, std::string_view code);
// The message without the code at its end.
std::string without_code(const std::string& message);

}  // namespace quintet::base
