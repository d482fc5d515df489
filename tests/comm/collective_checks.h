// Every collective against a dense computation that each rank does alone: inputs are functions of (rank,
// index), so any rank knows what all sent. Comparison is of bits. Throws std::runtime_error at the first
// difference; knows no test framework, so that the same body runs on threads and under mpirun.
#pragma once

#include "comm/communicator.h"

namespace quintet::comm::testing {

// All calls, dtypes and operations on one communicator, `rounds` times with sizes drawn from `seed` (0 and
// odd among them). Members give the same seed.
void check_collectives(Communicator& c, uint64_t seed, int rounds);

// all_to_all_v with sizes drawn from `seed`: empty pairs, members that get or give nothing, one that gets
// everything, send ranges that overlap, ranges in any order with gaps, messages longer than one piece of a
// backend.
void check_exchanges(Communicator& c, uint64_t seed);

// Splits the world into rows and columns of a grid with `columns` columns (size divides) and checks both
// kinds of group at the same time from two threads a rank.
void check_grid(World& world, int columns, uint64_t seed, int rounds);

// A ring of sends, both ways, and a chain where every member passes on what it got.
void check_sends(Communicator& c, uint64_t seed);

}  // namespace quintet::comm::testing
