// Levelled log lines prefixed with the rank: "[rank 3] warning: ...". A Log is a small value that is passed
// to its users; there is no global logger.
#pragma once

#include <fmt/core.h>

#include <optional>
#include <string_view>
#include <utility>

#include "observe/console.h"

namespace quintet::observe {

enum class Level { Debug, Info, Warning, Error, Silent };

std::string_view to_string(Level level);  // "debug", "info", "warning", "error", "silent"
std::optional<Level> parse_level(std::string_view text);

class Log {
 public:
  // Lines below `lowest` are dropped. Without a rank, lines have no prefix.
  explicit Log(Console& console, Level lowest = Level::Info, std::optional<int> rank = {})
      : console_(&console), lowest_(lowest), rank_(rank) {}

  Log with_rank(int rank) const { return Log(*console_, lowest_, rank); }
  bool enabled(Level level) const { return level >= lowest_ && lowest_ != Level::Silent; }
  void line(Level level, std::string_view text) const;

  template <class... Args>
  void debug(fmt::format_string<Args...> text, Args&&... args) const {
    if (enabled(Level::Debug)) line(Level::Debug, fmt::format(text, std::forward<Args>(args)...));
  }
  template <class... Args>
  void info(fmt::format_string<Args...> text, Args&&... args) const {
    if (enabled(Level::Info)) line(Level::Info, fmt::format(text, std::forward<Args>(args)...));
  }
  template <class... Args>
  void warning(fmt::format_string<Args...> text, Args&&... args) const {
    if (enabled(Level::Warning)) line(Level::Warning, fmt::format(text, std::forward<Args>(args)...));
  }
  template <class... Args>
  void error(fmt::format_string<Args...> text, Args&&... args) const {
    if (enabled(Level::Error)) line(Level::Error, fmt::format(text, std::forward<Args>(args)...));
  }

 private:
  Console* console_;
  Level lowest_;
  std::optional<int> rank_;
};

}  // namespace quintet::observe
