// Internal to room program: the words of the text form, shared by its writer and its parser.
#pragma once

#include <array>
#include <string_view>

#include "program/program.h"

namespace quintet::program::text {

// In the order of the enumerators.
inline constexpr std::array<std::string_view, 4> kScopes = {"persistent", "step", "micro", "body"};
inline constexpr std::array<std::string_view, 3> kWhen = {"always", "first", "last"};
inline constexpr std::array<std::string_view, 3> kAccumulate = {"never", "not_first", "always"};
inline constexpr std::array<std::string_view, 5> kRoles = {"weight", "master", "moment", "ema", "gradient"};
inline constexpr std::array<std::string_view, 3> kKeeps = {"saved", "derived", "transient"};
inline constexpr std::array<std::string_view, 3> kScalarKinds = {"input", "result", "state"};
inline constexpr std::array<std::string_view, 2> kReductions = {"sum", "max"};
inline constexpr int kNumBodyKinds = 9;
inline constexpr int kNumCollectiveKinds = 8;
inline constexpr int kNumPhases = 3;

template <class List, class Enum>
std::string_view word(const List& list, Enum value) {
  return list[static_cast<size_t>(value)];
}

}  // namespace quintet::program::text
