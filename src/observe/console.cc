#include "observe/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "base/printable.h"

namespace quintet::observe {
namespace {
constexpr std::string_view kEraseLine = "\r\x1b[2K";

// The longest prefix of `text` that takes at most `columns`, never splitting a UTF-8 character. Every
// character counts as one column.
std::string_view cut_columns(std::string_view text, size_t columns) {
  size_t taken = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool begins = (static_cast<uint8_t>(text[i]) & 0xC0) != 0x80;
    if (begins && taken++ == columns) return text.substr(0, i);
  }
  return text;
}
}  // namespace

Console::Console(Options options)
    : descriptor_(options.descriptor),
      terminal_(options.terminal.value_or(::isatty(options.descriptor) == 1)),
      fixed_width_(options.width) {}

Console::~Console() { end_live(); }

Console& Console::standard_output() {
  static Console console({.descriptor = 1});
  return console;
}

Console& Console::standard_error() {
  static Console console({.descriptor = 2});
  return console;
}

int Console::width() const {
  if (fixed_width_) return *fixed_width_;
  winsize size{};
  if (::ioctl(descriptor_, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

void Console::write_all(std::string_view text) {
  // A closed pipe must not end a training run: output that cannot be written is dropped.
  while (!text.empty()) {
    const ssize_t n = ::write(descriptor_, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

void Console::print_line(std::string_view line) {
  const std::lock_guard lock(mutex_);
  std::string text;
  if (!live_.empty()) text += kEraseLine;
  text += base::printable(line);
  text += '\n';
  text += live_;
  write_all(text);
}

void Console::set_live(std::string_view line) {
  if (!terminal_) return;
  // One column stays free: some terminals wrap a line that fills the last one.
  const auto columns = static_cast<size_t>(std::max(1, width() - 1));
  const std::lock_guard lock(mutex_);
  live_ = cut_columns(line, columns);
  std::string text(kEraseLine);
  text += live_;
  write_all(text);
}

void Console::end_live() {
  const std::lock_guard lock(mutex_);
  if (live_.empty()) return;
  live_.clear();
  write_all("\n");
}

}  // namespace quintet::observe
