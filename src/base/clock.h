// The only reader of a clock. Times are nanoseconds of a steady clock: only differences are meaningful, but
// processes on one machine share the origin, so their traces line up.
#pragma once

#include <cstdint>

namespace quintet::base {

int64_t now_ns();
inline double seconds_since(int64_t begin_ns) { return static_cast<double>(now_ns() - begin_ns) * 1e-9; }

// Time since this process started, including loading its libraries, in steps of 10 ms. 0 when the system
// does not report it.
int64_t process_age_ns();

// Seconds since 1970, for deadlines that others set.
int64_t wall_seconds();

}  // namespace quintet::base
