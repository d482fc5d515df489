// The only place that reads the process environment.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace quintet::config {

// Value of a variable, empty when it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

std::optional<std::string> environment(const std::string& name);

// How a launcher started this process.
struct Launch {
  std::string launcher;  // "mpirun", "srun", "pmix"
  int64_t rank = 0;
  int64_t world = 1;
  int64_t local_rank = 0;   // among the ranks on this host
  int64_t local_world = 1;  // ranks on this host; 1 when the launcher does not say
};

// Empty when no launcher started us. Variables of Open MPI (OMPI_COMM_WORLD_*) go before those of a Slurm
// step (SLURM_PROCID with SLURM_STEP_NUM_TASKS; a batch script outside srun has no step), then PMIx
// (PMIX_RANK with PMIX_SIZE). Throws UserError on values that are no numbers or contradict one another.
std::optional<Launch> detect_launch(const Environment& lookup = environment);

// Cores of this host that a Slurm job has, all its ranks together (SLURM_CPUS_ON_NODE); empty elsewhere.
std::optional<int64_t> host_cores(const Environment& lookup = environment);

// Where things are kept that only cost time to find again, such as tuned choices: QUINTET_CACHE_DIR,
// else quintet/ in XDG_CACHE_HOME or in ~/.cache. Empty when none of them is known.
std::string cache_folder(const Environment& lookup = environment);

}  // namespace quintet::config
