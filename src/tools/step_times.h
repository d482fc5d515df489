// Where the time of a step that was traced went, as the compute stream of a rank spent it: in kernels by
// class, in loading its batch, in waiting for collectives, and in none of these (the host).
//
// What a stretch of waiting was for is found by going backwards: from what the instruction after it waited
// for, through that stream, to what that in turn waited for. All of it is taken from one rank's own clock.
#pragma once

#include <string>
#include <vector>

#include "observe/trace.h"
#include "program/expand.h"

namespace quintet::tools {

struct StepTimes {
  double matmul = 0, attention = 0, other = 0;  // kernels of the model
  double optimizer = 0;                         // kernels of the step's begin and end
  double load = 0;                              // load_batch instructions
  double idle = 0;                              // the stream had nothing to do and waited for nobody
  double span = 0;                              // first start to last end of any stream; the sum of all

  struct Collective {
    double seconds = 0;  // of the call
    double exposed = 0;  // of that, while the compute stream stood still for it
  };
  std::vector<std::vector<Collective>> comms;  // by CommId, in the order of the calls

  double kernels() const { return matmul + attention + other + optimizer; }
};

// `trace` holds one run of `expanded` and nothing else.
StepTimes step_times(const program::Program& program, const program::Expanded& expanded,
                     const observe::RankTrace& trace);

// Of the seconds that a rank stood still for a collective, those in which data moved; before them it waited
// for others to come. The member that came last waited least, so the shortest call of all members is how long
// the data took: no clocks are compared. `shortest` is that.
inline double moving(const StepTimes::Collective& c, double shortest) {
  return c.exposed < shortest ? c.exposed : shortest;
}

}  // namespace quintet::tools
