#include "cli/provenance.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/text.h"
#include "machine/facts.h"

namespace quintet::cli {

base::Provenance provenance() {
  const machine::MachineFacts facts = machine::inspect_machine();
  std::error_code ignored;
  return {.version = QUINTET_VERSION,
          .commit = commit(),
          .build = fmt::format("{}, {}", QUINTET_BUILD_TYPE, QUINTET_COMPILER),
          .kernels = facts.matmul_sets.empty() ? "" : facts.matmul_sets.back(),
          .command = base::command_line(),
          .folder = std::filesystem::current_path(ignored).string(),
          .host = base::host_name(),
          .machine = fmt::format("{}, {} core{}, {}", facts.processor, facts.cores,
                                 facts.cores == 1 ? "" : "s", base::human_bytes(facts.memory_bytes))};
}

}  // namespace quintet::cli
