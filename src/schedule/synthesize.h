// Synthesizes a schedule for given costs and memory: never slower than the best named one, with a lower bound
// on the makespan of any schedule.
//
// Candidates are the named schedules (also with W placed by refill.h) and those that greedy.h generates under
// many policies, with one chunk per rank and with two in looped and V placement. The shortest makespan among
// those that respect the memory wins.
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "schedule/simulate.h"

namespace quintet::schedule {

struct Problem {
  int ranks = 1;
  int micro_batches = 1;
  // The costs of a schedule's virtual stages, given its chunks and placement.
  std::function<Costs(const Schedule& shape)> costs;
  // The most activations that a rank may hold, in whole stages (a chunk counts as its fraction), each from
  // its F to the end of its W.
  double memory = std::numeric_limits<double>::infinity();
  double freed_at_b = 0;  // fraction of an activation that its B frees
  int max_chunks = 2;
};

struct Synthesis {
  Schedule schedule;
  Costs costs;
  Timeline timeline;
  std::string origin;  // "zb-v", "zb-h2 with W placed by cost", "greedy, 2 chunks, V placement"
  // Lower bound on the makespan over these chunks and placements within the memory.
  double bound = 0;
  double gap() const { return timeline.makespan / bound - 1; }

  struct NamedResult {
    std::string name;
    double makespan = 0;  // infinite: exceeds the memory, or undefined for these numbers
  };
  std::vector<NamedResult> named;
};

// Throws UserError if no candidate respects the memory, stating the least that one needs.
Synthesis synthesize(const Problem& problem);

// The bound for one shape (ranks, chunks, micro-batches, placement); `most` counts activations of its chunks.
double makespan_bound(const Schedule& shape, const Costs& costs, double most, double freed_at_b);

}  // namespace quintet::schedule
