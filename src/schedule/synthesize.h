// A schedule made for the costs and the memory at hand, never slower than the best named one, with a proof of
// how far from the best possible it can be.
//
// Candidates are the named schedules (their W placed anew by refill.h) and those that greedy.h writes under
// many policies, over one chunk per rank and over two in looped and in V placement. The shortest makespan
// among those that keep to the memory wins.
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
  // The costs of a schedule's virtual stages, by its chunks and placement.
  std::function<Costs(const Schedule& shape)> costs;
  // The most activations that a rank may hold, in whole stages (a chunk's is its share), each from its F to
  // the end of its W.
  double memory = std::numeric_limits<double>::infinity();
  double freed_at_b = 0;  // share of an activation that is given back at B already
  int max_chunks = 2;
};

struct Synthesis {
  Schedule schedule;
  Costs costs;
  Timeline timeline;
  std::string origin;  // "zb-v", "zb-h2 with W placed by cost", "greedy, 2 chunks, V placement"
  // No schedule over these chunks and placements that keeps to the memory has a shorter makespan.
  double bound = 0;
  double gap() const { return timeline.makespan / bound - 1; }

  struct Rival {
    std::string name;
    double makespan = 0;  // infinite: it does not keep to the memory, or does not exist for these numbers
  };
  std::vector<Rival> named;
};

// A UserError when no candidate keeps to the memory, with the least that one needs.
Synthesis synthesize(const Problem& problem);

// The bound for one shape (ranks, chunks, micro-batches, placement), `most` in activations of its chunks.
double makespan_bound(const Schedule& shape, const Costs& costs, double most, double freed_at_b);

}  // namespace quintet::schedule
