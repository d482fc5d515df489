#include "base/machine.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>

namespace quintet::base {
namespace {

int64_t address_space_in_use() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  long long pages = 0;
  const int read = std::fscanf(file, "%lld", &pages);
  std::fclose(file);
  return read == 1 ? static_cast<int64_t>(pages) * ::sysconf(_SC_PAGESIZE) : 0;
}

}  // namespace

int64_t available_memory_bytes() {
  std::FILE* file = std::fopen("/proc/meminfo", "r");
  if (file == nullptr) return 0;
  char line[256];
  long long kib = 0;
  while (std::fgets(line, sizeof line, file) != nullptr)
    if (std::sscanf(line, "MemAvailable: %lld kB", &kib) == 1) break;
  std::fclose(file);
  const int64_t host = static_cast<int64_t>(kib) * 1024;
  const std::optional<int64_t> limit = address_space_limit();
  return limit ? std::min(host, std::max<int64_t>(0, *limit - address_space_in_use())) : host;
}

std::optional<int64_t> address_space_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 ||
      limit.rlim_cur >= static_cast<rlim_t>(std::numeric_limits<int64_t>::max()))
    return std::nullopt;
  return static_cast<int64_t>(limit.rlim_cur);
}

std::string process_name() {
  std::array<char, 256> host = {};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  return fmt::format("process {} on {}", ::getpid(), host[0] == '\0' ? "this host" : host.data());
}

}  // namespace quintet::base
