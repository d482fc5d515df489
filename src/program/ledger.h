// The ledger: what a rank sends and computes in one run of an expanded program, summed over the instructions
// themselves. Bytes follow the ring convention: of a message of B bytes (the whole, over all members) a
// member of a group of n sends 2(n-1)/n B for an all-reduce and (n-1)/n B for an all-gather, reduce-scatter
// or all-to-all. Of a message between two stages the sender sends all, the receiver nothing.
#pragma once

#include <array>

#include "program/expand.h"

namespace quintet::program {

struct LedgerRow {
  CommId comm;
  CollectiveKind kind = CollectiveKind::AllReduce;
  int64_t collectives = 0;
  int64_t message_bytes = 0;  // sum of the whole messages
  double sent_bytes = 0;      // by this rank
  friend bool operator==(const LedgerRow&, const LedgerRow&) = default;
};

struct Ledger {
  std::vector<LedgerRow> rows;             // by communicator, then kind; empty ones omitted
  std::array<double, 3> flops_by_phase{};  // by graph::Phase
  double flops = 0;                        // multiply and add count as two
  double touched_bytes = 0;                // operands of compute instructions, each read or written once

  int64_t collectives(CollectiveKind kind) const;
  int64_t collectives(CommId comm, CollectiveKind kind) const;
  double sent_bytes() const;
  double sent_bytes(CommId comm) const;
};

Ledger make_ledger(const Program& program, const Expanded& expanded);

// FLOPs and touched bytes of an instruction; zero for a collective.
graph::Cost cost_of(const Instr& instr);

// Bytes of the whole message of a collective in a group of `members`.
int64_t message_bytes(const Collective& collective, int members);
double sent_bytes(const Collective& collective, int members);

}  // namespace quintet::program
