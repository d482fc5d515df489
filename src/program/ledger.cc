#include "program/ledger.h"

#include <map>

#include "base/error.h"

namespace quintet::program {

graph::Cost cost_of(const Instr& instr) {
  if (instr.kind != InstrKind::Compute || instr.op->cost == nullptr) return {};
  std::vector<graph::Type> in, out;
  for (const Operand& o : instr.in) in.push_back(o.type);
  for (const Operand& o : instr.out) out.push_back(o.type);
  return instr.op->cost(in, out, instr.attrs);
}

int64_t message_bytes(const Collective& c, int members) {
  const int64_t own = c.count * base::size_of(c.dtype);
  const bool divided = c.kind == CollectiveKind::AllGather || c.kind == CollectiveKind::ReduceScatter ||
                       c.kind == CollectiveKind::AllToAll;
  return divided ? own * members : own;
}

double sent_bytes(const Collective& c, int members) {
  if (c.kind == CollectiveKind::Send) return static_cast<double>(message_bytes(c, members));
  if (c.kind == CollectiveKind::Recv) return 0;
  const double once = static_cast<double>(message_bytes(c, members)) * (members - 1) / members;
  return c.kind == CollectiveKind::AllReduce ? 2 * once : once;
}

Ledger make_ledger(const Program& p, const Expanded& e) {
  // How often each instruction of each body is issued.
  std::vector<std::vector<int64_t>> times;
  for (const Body& body : p.bodies) times.emplace_back(body.instrs.size(), 0);
  for (const Issue& issue : e.issues)
    ++times[static_cast<size_t>(issue.body)][static_cast<size_t>(issue.instr)];

  Ledger ledger;
  std::map<std::pair<CommId, CollectiveKind>, LedgerRow> rows;
  for (size_t b = 0; b < p.bodies.size(); ++b)
    for (size_t i = 0; i < p.bodies[b].instrs.size(); ++i) {
      const int64_t n = times[b][i];
      if (n == 0) continue;
      const Instr& instr = p.bodies[b].instrs[i];
      if (instr.repeated) continue;  // further passes of experts: none under balanced routing
      if (instr.kind == InstrKind::Collective) {
        const Collective& c = instr.collective;
        const int members = static_cast<int>(p.comms[c.comm.index()].members.size());
        LedgerRow& row = rows[{c.comm, c.kind}];
        row.comm = c.comm;
        row.kind = c.kind;
        row.collectives += n;
        row.message_bytes += n * message_bytes(c, members);
        row.sent_bytes += static_cast<double>(n) * sent_bytes(c, members);
      } else {
        const graph::Cost cost = cost_of(instr);
        ledger.flops_by_phase[static_cast<size_t>(instr.phase)] += static_cast<double>(n) * cost.flops;
        ledger.touched_bytes += static_cast<double>(n) * cost.bytes;
      }
    }
  for (auto& [key, row] : rows) ledger.rows.push_back(row);
  for (const double f : ledger.flops_by_phase) ledger.flops += f;
  return ledger;
}

int64_t Ledger::collectives(CollectiveKind kind) const {
  int64_t n = 0;
  for (const LedgerRow& row : rows)
    if (row.kind == kind) n += row.collectives;
  return n;
}

int64_t Ledger::collectives(CommId comm, CollectiveKind kind) const {
  for (const LedgerRow& row : rows)
    if (row.comm == comm && row.kind == kind) return row.collectives;
  return 0;
}

double Ledger::sent_bytes() const {
  double sum = 0;
  for (const LedgerRow& row : rows) sum += row.sent_bytes;
  return sum;
}

double Ledger::sent_bytes(CommId comm) const {
  double sum = 0;
  for (const LedgerRow& row : rows)
    if (row.comm == comm) sum += row.sent_bytes;
  return sum;
}

}  // namespace quintet::program
