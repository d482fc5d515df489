#include "base/error.h"
#include "comm/mpi.h"

namespace quintet::comm {
namespace {

[[noreturn]] void say_what_to_install() {
  base::fail_user(
      "this build has no MPI backend: install an MPI library (Debian: apt install libopenmpi-dev "
      "openmpi-bin), configure again with -DQUINTET_MPI=ON and rebuild; or run with the local backend");
}

}  // namespace

bool mpi_available() { return false; }
std::string mpi_version() { return {}; }
std::unique_ptr<World> make_mpi_world() { say_what_to_install(); }
void run_mpi_world(const std::function<void(World&)>&) { say_what_to_install(); }
void report_mpi_failures(std::function<void(const std::exception&)>) {}

}  // namespace quintet::comm
