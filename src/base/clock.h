// The only reader of a clock. Times are nanoseconds of a steady clock: differences mean something, absolute
// values do not, except that processes of one machine share the origin (so their traces line up).
#pragma once

#include <cstdint>

namespace quintet::base {

int64_t now_ns();

}  // namespace quintet::base
