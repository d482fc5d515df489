#include "config/environment.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/error.h"

namespace quintet::config {
namespace {

int64_t number(const std::string& name, const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0)
    base::fail_user("environment variable {} must be a non-negative integer, got \"{}\"", name, text);
  return value;
}

// The variables with which a launcher describes a process.
struct Variables {
  const char* launcher;
  const char* rank;
  const char* world;
  const char* local_rank;
  const char* local_world;  // empty: given as a list over all hosts (tasks_of_host)
};

// The tasks on host number `host` in Slurm's list of tasks per host, such as "8(x3),4".
std::optional<int64_t> tasks_of_host(std::string_view list, int64_t host) {
  while (!list.empty()) {
    const std::string_view entry = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), entry.size() + 1));
    int64_t tasks = 0, hosts = 1;
    const char* const end = entry.data() + entry.size();
    auto at = std::from_chars(entry.data(), end, tasks);
    std::string_view rest(at.ptr, static_cast<size_t>(end - at.ptr));
    if (at.ec == std::errc() && rest.starts_with("(x") && rest.ends_with(')')) {
      at = std::from_chars(at.ptr + 2, end, hosts);
      rest = std::string_view(at.ptr, static_cast<size_t>(end - at.ptr)).substr(1);
    }
    if (at.ec != std::errc() || !rest.empty() || tasks < 1 || hosts < 1) return std::nullopt;
    if (host < hosts) return tasks;
    host -= hosts;
  }
  return std::nullopt;
}

constexpr Variables kLaunchers[] = {
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ""},
    {"pmix", "PMIX_RANK", "PMIX_SIZE", "PMIX_LOCAL_RANK", "PMIX_LOCAL_SIZE"},
};

}  // namespace

std::optional<std::string> environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

std::map<std::string, std::string> environment_variables(std::string_view part) {
  std::map<std::string, std::string> found;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string_view::npos && text.substr(0, equals).find(part) != std::string_view::npos)
      found.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return found;
}

std::optional<Launch> detect_launch(const Environment& lookup) {
  for (const Variables& v : kLaunchers) {
    const auto rank = lookup(v.rank), world = lookup(v.world);
    if (!rank || !world) continue;
    Launch launch;
    launch.launcher = v.launcher;
    launch.rank = number(v.rank, *rank);
    launch.world = number(v.world, *world);
    if (launch.rank >= launch.world)
      base::fail_user("{} = {} must be below {} = {}: inconsistent launcher variables", v.rank, launch.rank,
                      v.world, launch.world);
    if (const auto local = lookup(v.local_rank)) launch.local_rank = number(v.local_rank, *local);
    if (*v.local_world != '\0') {
      if (const auto local = lookup(v.local_world)) launch.local_world = number(v.local_world, *local);
    } else if (const auto list = lookup("SLURM_STEP_TASKS_PER_NODE"), host = lookup("SLURM_NODEID");
               list && host) {
      launch.local_world =
          std::min(launch.world, tasks_of_host(*list, number("SLURM_NODEID", *host)).value_or(1));
    }
    return launch;
  }
  return std::nullopt;
}

std::optional<int64_t> host_cores(const Environment& lookup) {
  const auto cores = lookup("SLURM_CPUS_ON_NODE");
  if (!cores) return std::nullopt;
  return number("SLURM_CPUS_ON_NODE", *cores);
}

std::optional<int64_t> job_end(const Environment& lookup) {
  const auto end = lookup("SLURM_JOB_END_TIME");
  if (!end) return std::nullopt;
  return number("SLURM_JOB_END_TIME", *end);
}

bool has_escapes(const Environment& lookup) {
  const std::string terminal = lookup("TERM").value_or("");
  return !terminal.empty() && terminal != "dumb";
}

bool wants_colours(const Environment& lookup) {
  return has_escapes(lookup) && lookup("NO_COLOR").value_or("").empty();
}

std::string cache_folder(const Environment& lookup) {
  const auto given = [&](const char* name) { return lookup(name).value_or(""); };
  if (const std::string own = given("QUINTET_CACHE_DIR"); !own.empty()) return own;
  if (const std::string caches = given("XDG_CACHE_HOME"); !caches.empty()) return caches + "/quintet";
  if (const std::string home = given("HOME"); !home.empty()) return home + "/.cache/quintet";
  return "";
}

}  // namespace quintet::config
