// One place where lines reach a terminal or a pipe. Lines are written whole, so lines of several threads
// never mix; on a terminal a live line may stand below them, and lines printed meanwhile go above it.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace quintet::observe {

class Console {
 public:
  // `terminal` and `width` are asked of the descriptor unless given. The console does not own the descriptor.
  struct Options {
    int descriptor = 2;
    std::optional<bool> terminal;
    std::optional<int> width;
  };
  explicit Console(Options options);
  ~Console();  // leaves the cursor on a fresh line
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  static Console& standard_output();
  static Console& standard_error();

  bool is_terminal() const { return terminal_; }
  int width() const;  // columns now; 80 where nothing is known

  void print_line(std::string_view line);  // `line` without its newline; may hold several
  void set_live(
      std::string_view line);  // terminal only: replaces the live line (cut to the width); else nothing
  void end_live();             // leaves the live line standing as an ordinary line

 private:
  void write_all(std::string_view text);
  const int descriptor_;
  const bool terminal_;
  const std::optional<int> fixed_width_;
  std::mutex mutex_;
  std::string live_;
};

}  // namespace quintet::observe
