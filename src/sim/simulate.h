// Simulates when each instruction runs: in-order streams, explicit waits, and collectives that start when the
// last member arrives. The duration of an instruction is a function supplied by the caller, so the result
// shows what a program's order allows on the machine that the function describes.
//
// Simulates either all ranks of a world or representatives; in the latter case every rank behaves like one of
// the representatives at every moment. A collective waits for one member of each kind; the other members
// arrive together with their representatives. For a message between two ranks of one kind (around a ring),
// the k-th receive of the representative matches its own k-th send.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "program/expand.h"

namespace quintet::sim {

struct Rank {
  const program::Program* program;
  const program::Expanded* expanded;
};

struct World {
  std::vector<Rank> ranks;
  // Which of `ranks` represents a rank of the world; empty: `ranks` is the world, in rank order.
  std::function<int(base::RankId)> like;
};

// Seconds of an instruction by itself. Pure; called once for every instruction of a body. For a collective,
// the largest of its members' answers counts.
using DurationFn = std::function<double(const program::Program&, const program::Instr&)>;

// Which of a rank's links a collective loads, and the part of its duration before bytes flow.
struct Use {
  int link = -1;  // -1: none that is shared
  double latency = 0;
};
using UseFn = std::function<Use(const program::Program&, const program::Instr&)>;

struct Options {
  // Fraction of a collective that overlaps with compute, as far as streams allow. The rest first occupies the
  // compute stream exclusively: it starts when the compute issued before it has finished, and compute issued
  // after it waits. Messages (Send, Recv) always overlap.
  double hidden = 1;
  // Collectives that load the same link of a rank in the same direction share it evenly: each of n proceeds
  // at 1/n of its speed, and one with several members at the speed of its slowest. Sends load the outgoing
  // direction, receives the incoming one, all others both. Empty: collectives do not slow each other down.
  UseFn use = {};
};

struct Span {
  double start = 0, end = 0;  // seconds from the beginning of the step
  double ready = 0;           // when its stream was free for it
  double arrived = 0;         // when everything it waits for on its own rank was done
  int cause = -1;             // the issue it waited for last, after `ready`; -1: none
  double stall() const { return start - ready; }
  bool waited_for_members() const { return start > arrived; }
};

// Exclusive time on the compute stream that a collective took before the instruction `issue`.
struct Blocked {
  int issue = 0, collective = 0;
  double seconds = 0;
};

struct Simulation {
  std::vector<std::vector<Span>> ranks;       // by rank and issue
  std::vector<std::vector<Blocked>> blocked;  // by rank, in issue order; empty if everything overlaps
  double end = 0;
};

// The programs must pass program::verify_together().
Simulation simulate(const World& world, const DurationFn& duration, const Options& options = {});

// A machine in four numbers. An op takes the longer of arithmetic and memory traffic; a collective takes a
// latency plus the time its slowest member needs to send.
struct Rates {
  double flops_per_s = 1;
  double memory_bytes_per_s = 1;
  double sent_bytes_per_s = 1;
  double latency_s = 0;
};
DurationFn by_rates(const Rates& rates);

// The stream that issue `k` waited for after `ready`: another stream of its rank, or its own if it waited for
// other members. Invalid: it did not wait.
program::StreamId waited_for(const Rank& rank, const std::vector<Span>& spans, size_t k);

}  // namespace quintet::sim
