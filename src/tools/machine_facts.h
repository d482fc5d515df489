// What this machine has, as far as the engine can use it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace quintet::tools {

struct MachineFacts {
  std::string processor;                 // as the system names it
  int cores = 1;                         // that this process may use
  int machine_cores = 1;                 // of the machine, whoever may use them
  double load_average = 0;               // of the last minute, all processes of the machine; 0: unknown
  std::vector<std::string> matmul_sets;  // instruction sets of matrix products, worst first; the last is used
  int64_t memory_bytes = 0, available_bytes = 0;  // 0: the system does not say
  int64_t disk_free_bytes = 0;                    // where the process was started
  bool mpi = false;
  bool cuda = false;
  std::string launcher;                // that started this process; empty: none
  int64_t world = 1, local_world = 1;  // processes that it started, in all and on this host
  int64_t local_rank = 0;              // of this one among those on this host
};

MachineFacts inspect_machine();

// Others are at work on the machine: what is measured now is too slow. Judged before a measurement.
inline bool is_busy(const MachineFacts& facts) { return facts.load_average > 0.5 * facts.machine_cores; }

// A few lines in plain words, each ended.
std::string describe(const MachineFacts& facts);

}  // namespace quintet::tools
