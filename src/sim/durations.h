// How long the instructions of a program take on a cluster: what an op's operands amount to, in the terms of
// hardware/cost.h.
//
// Matrix products are priced by their sizes, attention by the FLOPs that its mask leaves, all else by the
// bytes of its operands. Communicators lie on the cluster as ranks do: rank r on node r / per_node, in the
// domain r / domain. All ranks of a node communicate at once, so each has its own share of the node's ports.
//
// Rows of experts: where how many come is known in the step only, programs have room for the most that can
// come. Here they count as what comes on average, times `imbalance`.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "hardware/cost.h"
#include "program/program.h"
#include "sim/simulate.h"

namespace quintet::sim {

struct Machine {
  hardware::Cluster cluster;
  hardware::Stack stack;
  // Of products inside blocks (the head's stay as they are); none: of their operands' type.
  std::optional<hardware::Arithmetic> matmul;
  double imbalance = 1;
  // Whether attention runs without tensor cores; empty: never.
  std::function<bool(const program::Instr&)> plain_attention = {};
};

enum class WorkClass : uint8_t { Matmul, Attention, Other };
WorkClass class_of(const graph::OpDef& op);

hardware::Arithmetic arithmetic_of(base::DType dtype);

// Of one program; both it and the machine must outlive this.
class Durations {
 public:
  Durations(const program::Program& program, const Machine& machine);

  double operator()(const program::Instr& instr) const;

  // The link that a collective loads: the slowest that it crosses.
  Use use(const program::Instr& instr) const;

  const hardware::Spread& spread(program::CommId comm) const { return spreads_[comm.index()]; }
  // What the op costs with the rows that are expected.
  graph::Cost cost(const program::Instr& instr) const;
  // As program::message_bytes and sent_bytes, with the rows that are expected.
  double message_bytes(const program::Collective& collective, const program::Instr& instr) const;
  double sent_bytes(const program::Instr& instr) const;
  // The type with the rows that are expected.
  graph::Type expected(graph::Type type) const;

 private:
  double compute_seconds(const program::Instr& instr) const;
  double exchange_seconds(const program::Instr& instr) const;

  const program::Program& program_;
  const Machine& machine_;
  std::vector<char> tensor_, experts_;        // by CommId: whether it joins tensor or expert ranks alone
  double choices_ = 1;                        // experts of a token
  std::vector<hardware::Spread> spreads_;     // by CommId
  std::map<int64_t, int64_t> expected_rows_;  // by the size of Dim::Routed in types
};

}  // namespace quintet::sim
