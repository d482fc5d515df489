// The catalogue's files, embedded at build time.
#pragma once

#include <string_view>

namespace quintet::hardware {

extern const std::string_view kAcceleratorsToml, kLinksToml, kStacksToml, kPricesToml;

}  // namespace quintet::hardware
