// The reason why a step ended, as text for the peers that are notified.
#pragma once

#include <exception>
#include <string>

namespace quintet::exec {

inline std::string message_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception of unknown type";
  }
}

}  // namespace quintet::exec
