// What ended a step, in words: for the peers that are told of it.
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
