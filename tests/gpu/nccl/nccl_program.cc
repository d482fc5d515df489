// Run under mpirun by tests/gpu/run_nccl.sh: the mode is the first argument. Prints "<mode> passed on N
// ranks".
#include <fmt/core.h>

#include <map>
#include <stdexcept>
#include <string>

#include "base/error.h"
#include "comm/local.h"
#include "comm/mpi.h"
#include "gpu/nccl/values.h"

namespace quintet::comm::testing {
namespace {

// Threads of one process: refused when they share a GPU, fine when each has its own.
void threads() {
  int count = 0;
  require(cudaGetDeviceCount(&count));
  if (count >= 2) return run_local_world(2, check_collectives);
  try {
    run_local_world(2, check_collectives);
  } catch (const base::UserError& e) {
    fmt::print("as it should: {}\n", e.what());
    expect(std::string(e.what()).find("mpirun") != std::string::npos, "that the message says what to do");
    return;
  }
  throw std::runtime_error("two threads on one GPU were not refused");
}

void run(const std::string& mode) {
  const std::map<std::string, void (*)(World&)> modes = {{"alone", check_alone},
                                                         {"collectives", check_collectives},
                                                         {"groups", check_groups},
                                                         {"grouped", check_grouped},
                                                         {"graph", check_graph},
                                                         {"join_timeout", fail_to_join},
                                                         {"first_timeout", fail_at_first_call},
                                                         {"later_timeout", fail_at_later_call},
                                                         {"graph_timeout", fail_in_graph},
                                                         {"abort", abort_a_call},
                                                         {"unwind", unwind},
                                                         {"mismatch", fail_to_agree},
                                                         {"killed", lose_a_peer}};
  if (mode == "threads") {
    threads();
    fmt::print("threads passed\n");
    return;
  }
  const auto found = modes.find(mode);
  if (found == modes.end()) base::fail_user("unknown mode '{}'", mode);
  run_mpi_world([&](World& world) {
    found->second(world);
    world.world().barrier();
    if (world.rank().value == 0) fmt::print("{} passed on {} ranks\n", mode, world.size());
  });
}

}  // namespace
}  // namespace quintet::comm::testing

int main(int argc, char** argv) try {
  quintet::comm::testing::run(argc > 1 ? argv[1] : "collectives");
} catch (const std::exception& e) {
  fmt::print(stderr, "{}\n", e.what());
  return 2;
}
