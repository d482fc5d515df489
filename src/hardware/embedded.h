// The catalogue's files as they were when the library was built.
#pragma once

#include <string_view>

namespace quintet::hardware {

extern const std::string_view kAcceleratorsToml, kLinksToml, kStacksToml, kPricesToml;

}  // namespace quintet::hardware
