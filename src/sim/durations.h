// How long the instructions of a program take on a cluster: translates an op's operands into the terms of
// hardware/cost.h.
//
// Matmuls are priced by their sizes, attention by the pairs that its mask leaves visible, everything else by
// the bytes of its operands. Ranks are placed in order: rank r is on node r / per_node and in domain
// r / domain. All ranks of a node communicate at the same time, so each has its own share of its ports.
//
// Expert rows: where the count is known only during the step, programs reserve space for the most rows that
// can arrive. Here they count as the average number of rows times `imbalance`.
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
  // Arithmetic of matmuls inside blocks (not of the head); unset: that of their operands' dtype.
  std::optional<hardware::Arithmetic> matmul;
  double imbalance = 1;
  // With packed documents: how many keys a query sees on average; 0: a sequence is one document.
  double visible_keys = 0;
  // Whether attention runs without tensor cores; empty: never.
  std::function<bool(const program::Instr&)> plain_attention = {};
};

enum class WorkClass : uint8_t { Matmul, Attention, Other };
WorkClass class_of(const graph::OpDef& op);

hardware::Arithmetic arithmetic_of(base::DType dtype);

// Durations for one program; the program and the machine must outlive this.
class Durations {
 public:
  Durations(const program::Program& program, const Machine& machine);

  double operator()(const program::Instr& instr) const;

  // The link that a collective loads: the slowest one it crosses.
  Use use(const program::Instr& instr) const;

  const hardware::Spread& spread(program::CommId comm) const { return spreads_[comm.index()]; }
  // The op's cost at the expected number of rows; in further passes of experts, that of all of them.
  graph::Cost cost(const program::Instr& instr) const;
  // Like program::message_bytes and sent_bytes, at the expected number of rows.
  double message_bytes(const program::Collective& collective, const program::Instr& instr) const;
  double sent_bytes(const program::Instr& instr) const;
  // The type with the expected number of rows.
  graph::Type expected(graph::Type type) const { return expected(std::move(type), false); }

 private:
  graph::Type expected(graph::Type type, bool repeated) const;
  // How often an instruction that is issued once runs.
  double times(const program::Instr& instr) const {
    return instr.repeated ? static_cast<double>(further_.passes) : 1.0;
  }
  double seconds_once(const program::Instr& instr) const;
  double compute_seconds(const program::Instr& instr) const;
  double exchange_seconds(const program::Instr& instr) const;

  const program::Program& program_;
  const Machine& machine_;
  std::vector<char> tensor_, experts_;        // by CommId: whether it joins only tensor or expert ranks
  double choices_ = 1;                        // experts per token
  std::vector<hardware::Spread> spreads_;     // by CommId
  std::map<int64_t, int64_t> expected_rows_;  // by the size of Dim::Routed in types
  struct {
    int64_t passes = 0, rows = 0;
  } further_;  // of experts that are expected to receive more rows than are planned for
};

}  // namespace quintet::sim
