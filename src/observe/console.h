// Line output to a terminal or a pipe. Each line is written with one call, so lines from different threads
// never interleave. On a terminal one live line may sit at the bottom; other lines are printed above it,
// broken at spaces where they are wider than it, and may have colours. A pipe gets the plain text.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace quintet::observe {

enum class Style : uint8_t { Plain, Bold, Dim, Good, Warning, Error };

// How a line looks on a terminal.
struct LineFormat {
  Style style = Style::Plain;
  size_t styled = std::string_view::npos;  // this many bytes at its start, where the label is
  size_t indent = 2;                       // of what does not fit on the first line
  bool break_words = false;                // that are wider than the terminal
};
// Lines that begin with a label of 13 columns.
inline constexpr LineFormat kLabelled{.style = Style::Bold, .styled = 13, .indent = 13};

class Console {
 public:
  // `terminal` and `width` are queried from the descriptor unless set. The descriptor is not owned.
  struct Options {
    int descriptor = 2;
    std::optional<bool> terminal;
    std::optional<int> width;
  };
  explicit Console(Options options);
  ~Console();  // leaves the cursor at the start of a new line
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  static Console& standard_output();
  static Console& standard_error();

  // Whether terminals of this process have colours; off until it is called. Not while consoles print.
  static void allow_colours(bool allowed);
  // Whether terminals of this process can erase a line; on until it is called. Without, there is no live
  // line.
  static void allow_live(bool allowed);

  bool is_terminal() const { return terminal_; }
  int width() const;  // current columns; 80 when unknown

  // Without the trailing newline; may contain several lines.
  void print_line(std::string_view line, const LineFormat& format = {});
  // Replaces the live line, truncated to the width; no effect unless a terminal.
  void set_live(std::string_view line);
  void clear_live();
  void end_live();  // turns the live line into an ordinary one

 private:
  std::string formatted(std::string_view line, const LineFormat& format) const;
  void write_all(std::string_view text);
  const int descriptor_;
  const bool terminal_;
  const std::optional<int> fixed_width_;
  std::mutex mutex_;
  std::string live_;
};

}  // namespace quintet::observe
