// The only reader of a clock. Times are nanoseconds of a steady clock: differences mean something, absolute
// values do not, except that processes of one machine share the origin (so their traces line up).
#pragma once

#include <cstdint>

namespace quintet::base {

int64_t now_ns();

// Since this process was started, loading its libraries included; in steps of 10 ms. 0 where the system does
// not tell.
int64_t process_age_ns();

}  // namespace quintet::base
