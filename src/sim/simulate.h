// When each instruction would run: streams in order, explicit waits, and collectives that begin when the last
// member has come. How long an instruction takes is a function that is given, so the result says what a
// program's order allows on whatever machine that function describes.
//
// Either all ranks of a world are simulated, or representatives: then every rank of the world is like one of
// them, at every moment. Of a communicator one member of each kind is waited for; the others come together
// with those they are like. A message between two ranks of one kind (round a ring) meets the representative's
// own: the k-th that it receives was sent when it sent its k-th.
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
  // Which of `ranks` a rank of the world is like; empty: `ranks` are the world, in rank order.
  std::function<int(base::RankId)> like;
};

// Seconds of an instruction by itself, a pure function; asked once for every instruction of a body. Of the
// members' answers for one collective the largest counts.
using DurationFn = std::function<double(const program::Program&, const program::Instr&)>;

// Which of a rank's links a collective loads, and how much of its duration is spent before bytes flow.
struct Use {
  int link = -1;  // -1: none that others load
  double latency = 0;
};
using UseFn = std::function<Use(const program::Program&, const program::Instr&)>;

struct Options {
  // Share of a collective that runs beside computing, as far as streams allow. The rest of it first takes the
  // compute stream for itself: it begins when what was issued before it is computed, and what was issued
  // after it waits. Messages (Send, Recv) are always hidden.
  double hidden = 1;
  // Collectives that load one link of a rank in the same direction at the same time share it evenly: of n
  // each goes on at 1/n of its speed, one with several members at that of its slowest. Sends load the way
  // out, receives the way in, all others both. Empty: no collective slows another.
  UseFn use = {};
};

struct Span {
  double start = 0, end = 0;  // seconds from the beginning of the step
  double ready = 0;           // when its stream was free for it
  double arrived = 0;         // when all was done that it waits for on its own rank
  int cause = -1;             // the issue that it last waited for beyond `ready`; -1: none
  double stall() const { return start - ready; }
  bool waited_for_members() const { return start > arrived; }
};

// What a collective took of the compute stream for itself, before the instruction `issue`.
struct Blocked {
  int issue = 0, collective = 0;
  double seconds = 0;
};

struct Simulation {
  std::vector<std::vector<Span>> ranks;       // by rank and issue
  std::vector<std::vector<Blocked>> blocked;  // by rank, in issue order; none where all is hidden
  double end = 0;
};

// Programs that program::verify_together() accepts.
Simulation simulate(const World& world, const DurationFn& duration, const Options& options = {});

// A machine in four numbers: the longer of arithmetic and memory traffic is what an op takes; a collective a
// latency and what its slowest member sends.
struct Rates {
  double flops_per_s = 1;
  double memory_bytes_per_s = 1;
  double sent_bytes_per_s = 1;
  double latency_s = 0;
};
DurationFn by_rates(const Rates& rates);

// The stream that issue `k` waited for beyond `ready`: another stream of its rank, its own when it waited for
// other members. Invalid: it did not wait.
program::StreamId waited_for(const Rank& rank, const std::vector<Span>& spans, size_t k);

}  // namespace quintet::sim
