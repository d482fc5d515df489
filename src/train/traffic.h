// The traffic of a run: what every rank sent, counted call by call, compared with the ledger of the programs
// that ran (program/ledger.h), and summed over ranks for the summary.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "exec/executor.h"
#include "program/ledger.h"

namespace quintet::train {

// Calls of one kind over groups of one kind, on one rank.
struct TrafficRow {
  std::string group;  // the mesh axes that it spans: "dp_shard", "cp+tp", "ep"
  comm::CallKind kind = comm::CallKind::Barrier;
  int members = 1;
  bool one_process = true, one_host = true;
  int64_t calls = 0, bytes = 0;  // bytes of whole messages (comm/call_totals.h)
  double sent_bytes = 0;         // by this rank
  double seconds = 0, waiting = 0;
};

// Counts the runs of a rank's programs.
class TrafficLedger {
 public:
  explicit TrafficLedger(const program::Program& program) : program_(program) {}

  void ran(const program::Expanded& expanded);
  // A run was abandoned in the middle: from here on nothing is compared.
  void lost() { lost_ = true; }

  // InternalError unless the backend has made exactly the calls, with exactly the bytes, that the programs
  // planned on every communicator. Rows of experts, whose number is known in the step only, are compared by
  // the number of calls. True if the backend counts its calls, so that they were compared.
  bool require_planned(const exec::Executor& executor) const;

  // By group and kind: counted where the backend counts, else as planned, without times. `process_of` and
  // `host_of` identify those of all ranks.
  std::vector<TrafficRow> rows(const exec::Executor& executor, const std::vector<int64_t>& process_of,
                               const std::vector<int64_t>& host_of) const;

 private:
  // By communicator and kind.
  std::map<std::pair<size_t, comm::CallKind>, comm::CallTotals> planned() const;

  const program::Program& program_;
  std::map<const program::Expanded*, int64_t> runs_;
  mutable std::map<const program::Expanded*, program::Ledger> ledgers_;
  bool lost_ = false;
};

// The sum of a row over the ranks that have it, as the summary shows it.
struct GroupTraffic {
  std::string group, call, link;  // link: "memory" of a process, "host" or "network"
  std::string transport;
  int64_t members = 0, ranks = 0;
  int64_t calls = 0, bytes = 0;             // of the rank that has the most
  double sent_bytes = 0;                    // by all ranks
  double seconds = 0, waiting = 0;          // mean over the ranks; 0: not timed
  int64_t longest_wait_rank = 0;            // the rank that waited the most,
  double longest_wait = 0;                  // for so long
  double bandwidth = 0, bus_bandwidth = 0;  // bytes/s of a rank while it did not wait; 0: not timed
};

// Collective over the world; complete on rank 0.
std::vector<GroupTraffic> gather_traffic(const TrafficLedger& ledger, const exec::Executor& executor,
                                         comm::World& world);

// For the console: the total, then the groups that took the most time.
std::vector<std::string> traffic_lines(const std::vector<GroupTraffic>& traffic);

}  // namespace quintet::train
