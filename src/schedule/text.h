// A schedule as text, to print, to keep and to write by hand:
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
// An action is chunk, kind (F, B, W, BW), micro-batch. A + between an F and a B or BW says that the two run
// mixed: "0F3+1BW2". From # to the end of a line is a comment.
#pragma once

#include <string>
#include <string_view>

#include "schedule/schedule.h"

namespace quintet::schedule {

std::string print(const Schedule& schedule);

// Reads what print() writes. Errors are UserErrors that begin with "<file>:<line>:<column>: ". Only the form
// is read; whether the schedule is legal is check()'s business.
Schedule parse(std::string_view text, std::string_view file = "schedule");

// Reads and checks a user's own file; every error names it.
Schedule load(const std::string& path);

}  // namespace quintet::schedule
