// When every action of a schedule starts and ends, for given costs. Ranks compute one action at a time and
// start as soon as the inputs are there; a transfer between ranks takes `hop` and keeps neither rank busy.
#pragma once

#include <vector>

#include "schedule/schedule.h"

namespace quintet::schedule {

// Times in any one unit, by virtual stage. A BW takes b + w.
struct Costs {
  std::vector<double> f, b, w;
  double hop = 0;         // from the end of an action to when another rank may use its result
  double mix_saving = 0;  // what a mixed pair takes less than its two actions one after the other

  // The same for all virtual stages of the schedule.
  static Costs uniform(const Schedule& schedule, double f, double b, double w, double hop = 0);
};

struct Slot {
  double start = 0;
  double end = 0;
};

struct Timeline {
  std::vector<std::vector<Slot>> ranks;  // as Schedule::ranks
  std::vector<double> busy;              // by rank
  double makespan = 0;                   // until the last rank ends
  double longest_span = 0;  // the longest that one rank takes from its first start to its last end

  double work() const;  // mean of busy
  // Time and share lost while all ranks wait for the last: what counts when a step begins and ends for all
  // together.
  double bubble() const { return makespan - work(); }
  double bubble_rate() const { return bubble() / makespan; }
  // The same by rank, from its own first start to its own end: what counts when the next step may begin at
  // once, so that steps mesh. The zero-bubble schedules are measured so.
  double span_bubble() const { return longest_span - work(); }
  double span_bubble_rate() const { return span_bubble() / longest_span; }
};

// The schedule must be legal (check.h); a deadlock is a UserError here too.
Timeline simulate(const Schedule& schedule, const Costs& costs);

double duration(const Schedule& schedule, const Costs& costs, int rank, const Action& action);

}  // namespace quintet::schedule
