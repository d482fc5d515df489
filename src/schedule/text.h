// The text format of schedules, for printing, storing and writing by hand:
//
//   schedule 1f1b            # a name
//   stages 2                 # pipeline ranks
//   chunks 1                 # virtual stages per rank
//   micro_batches 3
//   placement looped         # or v
//   max_in_flight 2 1        # one number per rank; may be left out
//   0: 0F0 0F1 0BW0 0F2 0BW1 0BW2
//   1: 0F0 0BW0 0F1 0BW1 0F2 0BW2
//
// An action is chunk, kind (F, B, W, BW), micro-batch. A + between an F and a B or BW marks a mixed pair:
// "0F3+1BW2". # starts a comment that extends to the end of the line.
#pragma once

#include <string>
#include <string_view>

#include "schedule/schedule.h"

namespace quintet::schedule {

std::string print(const Schedule& schedule);

// Reads what print() writes. Throws UserError starting with "<file>:<line>:<column>: ". Checks only the
// syntax; check() decides whether the schedule is legal.
Schedule parse(std::string_view text, std::string_view file = "schedule");

// Reads and checks a user's file; every error names it.
Schedule load(const std::string& path);

}  // namespace quintet::schedule
