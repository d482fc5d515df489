// UserError: invalid input; the message gives what is wrong, the value seen and what would be accepted; exit
// code 2. InternalError: a broken invariant of the engine; exit code 1.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace quintet::base {

class UserError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

template <class... Args>
[[noreturn]] void fail_user(fmt::format_string<Args...> text, Args&&... args) {
  throw UserError(fmt::format(text, std::forward<Args>(args)...));
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
