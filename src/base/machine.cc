#include "base/machine.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>

namespace quintet::base {

int64_t available_memory_bytes() {
  std::FILE* file = std::fopen("/proc/meminfo", "r");
  if (file == nullptr) return 0;
  char line[256];
  long long kib = 0;
  while (std::fgets(line, sizeof line, file) != nullptr)
    if (std::sscanf(line, "MemAvailable: %lld kB", &kib) == 1) break;
  std::fclose(file);
  return static_cast<int64_t>(kib) * 1024;
}

std::string process_name() {
  std::array<char, 256> host = {};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  return fmt::format("process {} on {}", ::getpid(), host[0] == '\0' ? "this host" : host.data());
}

}  // namespace quintet::base
