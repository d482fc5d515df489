// UserError: invalid input; the message gives what is wrong, the value seen and what would be accepted; exit
// code 2. InternalError: a broken invariant of the engine; exit code 1.
//
// Every message of a UserError ends with a stable code in brackets, such as [Q2101], that `quintet explain`
// says more about. The code is given, or follows from the source file that throws (error_codes.h). A message
// that quotes another error keeps the code of that one.
#pragma once

#include <fmt/core.h>

#include <concepts>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace quintet::base {

class UserError : public std::runtime_error {
 public:
  explicit UserError(const std::string& message, std::source_location at = std::source_location::current());
  UserError(const std::string& message, std::string_view code);

  // The first code in the message; empty for errors thrown outside Quintet's sources.
  std::string_view code() const;
};

class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

// A format string together with the place that contains it.
template <class... Args>
struct FormatAt {
  template <std::convertible_to<std::string_view> Text>
  consteval FormatAt(const Text& format, std::source_location place = std::source_location::current())
      : text(format), at(place) {}
  fmt::format_string<Args...> text;
  std::source_location at;
};

template <class... Args>
[[noreturn]] void fail_user(FormatAt<std::type_identity_t<Args>...> format, Args&&... args) {
  throw UserError(fmt::format(format.text, std::forward<Args>(args)...), format.at);
}

template <class... Args>
[[noreturn]] void fail_internal(fmt::format_string<Args...> text, Args&&... args) {
  throw InternalError(fmt::format(text, std::forward<Args>(args)...));
}

// Checks an invariant that no input can violate. Always on: a wrong result costs more than the comparison.
#define QUINTET_CHECK(condition, ...)                                                                       \
  do {                                                                                                      \
    if (!(condition)) [[unlikely]]                                                                          \
      ::quintet::base::fail_internal("{}:{}: {} ({})", __FILE_NAME__, __LINE__, ::fmt::format(__VA_ARGS__), \
                                     #condition);                                                           \
  } while (false)

#ifndef __FILE_NAME__
#define __FILE_NAME__ __FILE__
#endif

}  // namespace quintet::base
