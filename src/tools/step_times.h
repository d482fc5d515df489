// Time breakdown of a traced step, as seen by the compute stream of one rank: kernels by class, loading the
// batch, waiting for collectives, and the rest (the host).
//
// The cause of a wait is found by walking backwards: from what the next instruction waited for, through that
// stream, to what that one waited for. All times come from the clock of a single rank.
#pragma once

#include <string>
#include <vector>

#include "observe/trace.h"
#include "program/expand.h"

namespace quintet::tools {

struct StepTimes {
  double matmul = 0, attention = 0, other = 0;  // kernels of the model
  double optimizer = 0;                         // kernels at the start and the end of the step
  double load = 0;                              // load_batch instructions
  double idle = 0;                              // the stream was empty and waited for nothing
  double span = 0;                              // first start to last end on any stream; the sum of all

  struct Collective {
    double seconds = 0;  // duration of the call
    double exposed = 0;  // part of it during which the compute stream was stalled
  };
  std::vector<std::vector<Collective>> comms;  // by CommId, in call order

  double kernels() const { return matmul + attention + other + optimizer; }
};

// `trace` must contain exactly one run of `expanded`.
StepTimes step_times(const program::Program& program, const program::Expanded& expanded,
                     const observe::RankTrace& trace);

// The part of a stall during which data moved; before that, the rank waited for late members. The last member
// to arrive waits least, so the shortest call over all members (`shortest`) is the transfer time, without
// comparing clocks.
inline double transfer_seconds(const StepTimes::Collective& c, double shortest) {
  return c.exposed < shortest ? c.exposed : shortest;
}

}  // namespace quintet::tools
