// Facts about this machine that matter to the engine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace quintet::machine {

struct MachineFacts {
  std::string processor;                 // as named by the system
  int cores = 1;                         // available to this process
  int machine_cores = 1;                 // of the whole machine
  double load_average = 0;               // last minute, all processes; 0: unknown
  std::vector<std::string> matmul_sets;  // instruction sets for matmuls, slowest first; the last is used
  int64_t memory_bytes = 0, available_bytes = 0;  // 0: unknown
  int64_t disk_free_bytes = 0;                    // in the working directory
  bool mpi = false;
  bool cuda = false;
  std::string launcher;                // that started this process; empty: none
  int64_t world = 1, local_world = 1;  // processes it started, in total and on this host
  int64_t local_rank = 0;              // index of this process on this host
};

MachineFacts inspect_machine();

// Other processes are running, so measurements would be too slow. Check before measuring.
inline bool is_busy(const MachineFacts& facts) { return facts.load_average > 0.5 * facts.machine_cores; }

// A few lines for the terminal, each with a newline.
std::string describe(const MachineFacts& facts);

}  // namespace quintet::machine
