#include "machine/facts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "base/file.h"
#include "base/machine.h"
#include "base/text.h"
#include "comm/mpi.h"
#include "config/environment.h"
#include "kernels/cpu/matmul/gemm.h"

namespace quintet::machine {
namespace {

// The value after "key :" in a file of /proc; empty when absent.
std::string proc_value(const char* path, std::string_view key) {
  if (!base::file_exists(path)) return {};
  const std::string text = base::read_file(path);
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    const size_t colon = line.find(':');
    if (line.starts_with(key) && colon != std::string_view::npos) {
      const size_t start = line.find_first_not_of(" \t", colon + 1);
      return start == std::string_view::npos ? std::string() : std::string(line.substr(start));
    }
    at = end + 1;
  }
  return {};
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

}  // namespace

MachineFacts inspect_machine() {
  MachineFacts facts;
  facts.processor = proc_value("/proc/cpuinfo", "model name");
  if (facts.processor.empty()) facts.processor = "unknown processor";
  facts.cores = usable_cores();
  facts.machine_cores = std::max<int>(facts.cores, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
  if (double load = 0; ::getloadavg(&load, 1) == 1) facts.load_average = load;
  for (const kernels::GemmIsa isa : kernels::gemm_isas())
    facts.matmul_sets.emplace_back(kernels::to_string(isa));
  facts.memory_bytes = std::atoll(proc_value("/proc/meminfo", "MemTotal").c_str()) * 1024;
  facts.available_bytes = base::available_memory_bytes();
  facts.disk_free_bytes = base::free_bytes(".");
  facts.mpi = comm::mpi_available();
  facts.cuda = QUINTET_HAS_CUDA != 0;
  if (const auto launch = config::detect_launch()) {
    facts.launcher = launch->launcher;
    facts.world = launch->world;
    facts.local_world = launch->local_world;
    facts.local_rank = launch->local_rank;
  }
  return facts;
}

std::string describe(const MachineFacts& f) {
  std::string text = fmt::format("processor   {}, {} core{} for this process\n", f.processor, f.cores,
                                 f.cores == 1 ? "" : "s");
  if (is_busy(f))
    text += fmt::format(
        "load        {:.1f} on {} core{}: other processes are running; measurements are too slow\n",
        f.load_average, f.machine_cores, f.machine_cores == 1 ? "" : "s");
  text += fmt::format("matmul      {} (of {})\n", f.matmul_sets.back(), fmt::join(f.matmul_sets, ", "));
  text += fmt::format("memory      {}, {} free\n", base::human_bytes(f.memory_bytes),
                      base::human_bytes(f.available_bytes));
  text += fmt::format("disk        {} free in this folder\n", base::human_bytes(f.disk_free_bytes));
  text += f.mpi ? "MPI         built in: start ranks as processes with mpirun or srun\n"
                : "MPI         not built in: ranks are threads of one process. Install Open MPI "
                  "(libopenmpi-dev) and configure again\n";
  text += f.cuda
              ? "CUDA        built in: run.device = \"cuda\"\n"
              : "CUDA        not built in: install the CUDA toolkit and configure with -DQUINTET_CUDA=ON\n";
  text += f.launcher.empty() ? std::string("launcher    none: a single process\n")
                             : fmt::format("launcher    {}: {} processes, {} on this host\n", f.launcher,
                                           f.world, f.local_world);
  return text;
}

}  // namespace quintet::machine
