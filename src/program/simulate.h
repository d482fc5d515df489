// When each instruction of all ranks would run: streams in order, explicit waits, and collectives that begin
// when the last member has come. Durations come from the cost of an op and the bytes of a message by given
// rates, so the result says what a program's order allows, whatever the machine.
#pragma once

#include <vector>

#include "program/expand.h"

namespace quintet::program {

// The longer of arithmetic and memory traffic is what an op takes; a collective a latency and what its
// slowest member sends.
struct SimRates {
  double flops_per_ns = 1;
  double memory_bytes_per_ns = 1;
  double sent_bytes_per_ns = 1;
  double latency_ns = 0;
};

struct SimSpan {
  double start = 0, end = 0;  // ns from the beginning of the step
  double ready = 0;           // when its stream was free for it
  // The stream that it last waited for beyond `ready`: another stream of this rank, its own when it waited
  // for other members. Invalid: it did not wait.
  StreamId waited_for;
  double stall() const { return start - ready; }
};

struct Simulation {
  std::vector<std::vector<SimSpan>> ranks;  // by rank and issue
  double end = 0;
};

// All ranks of a world, in rank order, that verify_together() accepts.
Simulation simulate(const std::vector<const Program*>& programs, const std::vector<const Expanded*>& expanded,
                    const SimRates& rates);

// How long an instruction takes by itself.
double duration_ns(const Program& program, const Instr& instr, const SimRates& rates);

}  // namespace quintet::program
