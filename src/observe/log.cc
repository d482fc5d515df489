#include "observe/log.h"

#include <array>
#include <string>

namespace quintet::observe {
namespace {
constexpr std::array<std::pair<Level, std::string_view>, 5> kNames = {{{Level::Debug, "debug"},
                                                                       {Level::Info, "info"},
                                                                       {Level::Warning, "warning"},
                                                                       {Level::Error, "error"},
                                                                       {Level::Silent, "silent"}}};
}  // namespace

std::string_view to_string(Level level) {
  for (const auto& [value, name] : kNames)
    if (value == level) return name;
  return "?";
}

std::optional<Level> parse_level(std::string_view text) {
  for (const auto& [value, name] : kNames)
    if (name == text) return value;
  return std::nullopt;
}

void Log::line(Level level, std::string_view text) const {
  if (!enabled(level)) return;
  std::string prefix;
  if (rank_) prefix = fmt::format("[rank {}] ", *rank_);
  if (level != Level::Info) prefix += fmt::format("{}: ", to_string(level));
  console_->print_line(prefix + std::string(text));
}

}  // namespace quintet::observe
