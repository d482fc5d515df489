// Line output to a terminal or a pipe. Each line is written with one call, so lines from different threads
// never interleave. On a terminal one live line may sit at the bottom; other lines are printed above it.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace quintet::observe {

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

  bool is_terminal() const { return terminal_; }
  int width() const;  // current columns; 80 when unknown

  void print_line(std::string_view line);  // without the trailing newline; may contain several lines
  void set_live(
      std::string_view line);  // replaces the live line, truncated to the width; no effect unless a terminal
  void end_live();             // turns the live line into an ordinary one

 private:
  void write_all(std::string_view text);
  const int descriptor_;
  const bool terminal_;
  const std::optional<int> fixed_width_;
  std::mutex mutex_;
  std::string live_;
};

}  // namespace quintet::observe
