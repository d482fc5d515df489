#include "exec/cuda_architectures.h"

#include <algorithm>
#include <charconv>

namespace quintet::exec::cuda {
namespace {

bool runs(std::string_view architecture, int gpu) {
  int of = 0;
  const char* const end = architecture.data() + architecture.size();
  const auto [rest, error] = std::from_chars(architecture.data(), end, of);
  if (error != std::errc()) return true;
  const std::string_view suffix(rest, static_cast<size_t>(end - rest));
  if (suffix.starts_with('a')) return gpu == of;
  const bool only_machine_code = suffix.starts_with('f') || suffix == "-real";
  return gpu >= of && (!only_machine_code || gpu / 10 == of / 10);
}

}  // namespace

std::string architecture_of(int major, int minor) {
  const std::string number = std::to_string(10 * major + minor);
  return number == "90" ? "90a" : number;
}

bool has_code(std::string_view architectures, int major, int minor) {
  while (!architectures.empty()) {
    const std::string_view one = architectures.substr(0, architectures.find_first_of(";, "));
    architectures.remove_prefix(std::min(architectures.size(), one.size() + 1));
    if (!one.empty() && runs(one, 10 * major + minor)) return true;
  }
  return false;
}

}  // namespace quintet::exec::cuda
