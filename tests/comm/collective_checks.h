// Every collective against a dense computation that each rank does alone: inputs are functions of (rank,
// index), so any rank knows what all sent. Results are compared bit by bit. Throws std::runtime_error at the
// first difference; independent of a test framework, so that the same body runs on threads and under mpirun.
#pragma once

#include "comm/communicator.h"

namespace quintet::comm::testing {

// All calls, dtypes and operations on one communicator, `rounds` times with sizes drawn from `seed`
// (including 0 and odd ones). All members pass the same seed.
void check_collectives(Communicator& c, uint64_t seed, int rounds);

// all_to_all_v with sizes drawn from `seed`: empty pairs, members that receive or send nothing, one that
// receives everything, overlapping send ranges, ranges in any order with gaps, messages longer than one piece
// of a backend.
void check_exchanges(Communicator& c, uint64_t seed);

// Splits the world into rows and columns of a grid with `columns` columns (which divides the size) and checks
// both kinds of group concurrently from two threads per rank.
void check_grid(World& world, int columns, uint64_t seed, int rounds);

// A ring of sends, in both directions, and a chain in which every member forwards what it received.
void check_sends(Communicator& c, uint64_t seed);

}  // namespace quintet::comm::testing
