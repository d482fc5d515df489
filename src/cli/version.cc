#include "cli/version.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/wrap.h"
#include "cli/provenance.h"
#include "comm/mpi.h"
#include "machine/facts.h"

namespace quintet::cli {

std::string version_text() {
  std::string text = fmt::format("quintet {}\n", QUINTET_VERSION);
  const auto line = [&](const char* label, const std::string& value) {
    text += base::wrapped(fmt::format("  {:<12}{}", label, value), 79, 14) + "\n";
  };
  if (*commit() != '\0') line("commit", commit());
  line("build", fmt::format("{}, {}", QUINTET_BUILD_TYPE, QUINTET_COMPILER));
  line("libraries", QUINTET_LIBRARIES);
  line("MPI", comm::mpi_available() ? comm::mpi_version() : "not built in");
  const std::vector<std::string> sets = machine::inspect_machine().matmul_sets;
  line("CPU kernels", fmt::format("{} on this processor (of {})", sets.back(), fmt::join(sets, ", ")));
  line("GPU kernels", *QUINTET_GPU == '\0' ? "not built in" : QUINTET_GPU);
  text.pop_back();  // CLI11 ends the text
  return text;
}

}  // namespace quintet::cli
