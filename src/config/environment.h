// The only reader of the process environment.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace quintet::config {

// Looks up a variable; empty when it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

std::optional<std::string> environment(const std::string& name);
// Every variable whose name contains `part`.
std::map<std::string, std::string> environment_variables(std::string_view part);

// How a launcher started this process.
struct Launch {
  std::string launcher;  // "mpirun", "srun", "pmix"
  int64_t rank = 0;
  int64_t world = 1;
  int64_t local_rank = 0;   // among the ranks on this host
  int64_t local_world = 1;  // ranks on this host; 1 when the launcher does not report it
};

// Empty when no launcher started this process. Open MPI variables (OMPI_COMM_WORLD_*) take precedence over
// those of a Slurm step (SLURM_PROCID with SLURM_STEP_NUM_TASKS; a batch script outside srun has no step),
// then PMIx (PMIX_RANK with PMIX_SIZE). UserError when values are not numbers or contradict each other.
std::optional<Launch> detect_launch(const Environment& lookup = environment);

// Cores of this host allocated to the whole Slurm job (SLURM_CPUS_ON_NODE); empty outside Slurm.
std::optional<int64_t> host_cores(const Environment& lookup = environment);

// When the Slurm job ends, in seconds since 1970 (SLURM_JOB_END_TIME); empty outside Slurm.
std::optional<int64_t> job_end(const Environment& lookup = environment);

// Whether TERM names a terminal that knows escape sequences.
bool has_escapes(const Environment& lookup = environment);
// Whether output on a terminal may have colours: it knows escape sequences, and NO_COLOR is not set
// (no-color.org).
bool wants_colours(const Environment& lookup = environment);

// Folder for results that can be recomputed, such as tuned GEMM algorithms: QUINTET_CACHE_DIR, else quintet/
// in XDG_CACHE_HOME or ~/.cache. Empty when none of them is set.
std::string cache_folder(const Environment& lookup = environment);

}  // namespace quintet::config
