// When every action of a schedule starts and ends, for given costs. Ranks compute one action at a time and
// start as soon as its inputs are available; a transfer between ranks takes `hop` and occupies neither rank.
#pragma once

#include <vector>

#include "schedule/schedule.h"

namespace quintet::schedule {

// Times in any one unit, by virtual stage. A BW takes b + w.
struct Costs {
  std::vector<double> f, b, w;
  double hop = 0;         // from the end of an action until another rank can use its result
  double mix_saving = 0;  // time saved by a mixed pair over running its two actions in sequence

  // The same costs for all virtual stages of the schedule.
  static Costs uniform(const Schedule& schedule, double f, double b, double w, double hop = 0);
};

struct Slot {
  double start = 0;
  double end = 0;
};

struct Timeline {
  std::vector<std::vector<Slot>> ranks;  // as Schedule::ranks
  std::vector<double> busy;              // by rank
  double makespan = 0;                   // end of the last rank
  double longest_span = 0;               // the longest time from a rank's first start to its last end

  double work() const;  // mean of busy
  // Time and fraction lost if all ranks start and end a step together.
  double bubble() const { return makespan - work(); }
  double bubble_rate() const { return bubble() / makespan; }
  // The same per rank, from its own first start to its own end: applies if the next step may start at once,
  // so that consecutive steps overlap. Zero-bubble schedules are measured this way.
  double span_bubble() const { return longest_span - work(); }
  double span_bubble_rate() const { return span_bubble() / longest_span; }
};

// The schedule must be legal (check.h); a deadlock throws UserError here too.
Timeline simulate(const Schedule& schedule, const Costs& costs);

double duration(const Schedule& schedule, const Costs& costs, int rank, const Action& action);

}  // namespace quintet::schedule
