#include "observe/console.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "base/printable.h"
#include "base/wrap.h"

namespace quintet::observe {
namespace {
constexpr std::string_view kEraseLine = "\r\x1b[2K";
constexpr std::string_view kPlain = "\x1b[0m";
constexpr int kNarrowest = 20;  // narrower terminals are not wrapped for
bool colours_allowed = false;
bool live_allowed = true;

// Erases the live line and leaves the cursor at its start. A terminal that has become narrower has broken it
// into several rows, with the cursor in the last.
std::string erased(std::string_view live, int columns) {
  if (live.empty()) return std::string(kEraseLine);
  const size_t rows = (base::columns_of(live) - 1) / static_cast<size_t>(std::max(1, columns)) + 1;
  return rows == 1 ? std::string(kEraseLine) : fmt::format("\r\x1b[{}A\x1b[J", rows - 1);
}

std::string_view escape_of(Style style) {
  switch (style) {
    case Style::Bold:
      return "\x1b[1m";
    case Style::Dim:
      return "\x1b[2m";
    case Style::Good:
      return "\x1b[32m";
    case Style::Warning:
      return "\x1b[33m";
    case Style::Error:
      return "\x1b[1;31m";
    case Style::Plain:
      break;
  }
  return "";
}
}  // namespace

void Console::allow_colours(bool allowed) { colours_allowed = allowed; }
void Console::allow_live(bool allowed) { live_allowed = allowed; }

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

std::string Console::formatted(std::string_view line, const LineFormat& format) const {
  std::string text = base::printable(line);
  if (!terminal_) return text;
  if (const int columns = width(); columns >= kNarrowest)
    text = base::wrapped(text, static_cast<size_t>(columns - 1), format.indent, format.break_words);
  if (!colours_allowed || format.style == Style::Plain || text.empty()) return text;
  text.insert(std::min(format.styled, text.size()), kPlain);
  text.insert(0, escape_of(format.style));
  return text;
}

void Console::print_line(std::string_view line, const LineFormat& format) {
  const std::lock_guard lock(mutex_);
  std::string text;
  if (!live_.empty()) {
    const int columns = width();
    text += erased(live_, columns);
    live_ = base::first_columns(live_, static_cast<size_t>(std::max(1, columns - 1)));
  }
  text += formatted(line, format);
  text += '\n';
  text += live_;
  write_all(text);
}

void Console::set_live(std::string_view line) {
  if (!terminal_ || !live_allowed) return;
  // One column stays free: some terminals wrap a line that fills the last one.
  const int columns = width();
  const std::lock_guard lock(mutex_);
  std::string text = erased(live_, columns);
  std::string plain = base::printable(line);
  std::replace_if(
      plain.begin(), plain.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
  live_ = base::first_columns(plain, static_cast<size_t>(std::max(1, columns - 1)));
  text += live_;
  write_all(text);
}

void Console::clear_live() {
  const std::lock_guard lock(mutex_);
  if (live_.empty()) return;
  const std::string text = erased(live_, width());
  live_.clear();
  write_all(text);
}

void Console::end_live() {
  const std::lock_guard lock(mutex_);
  if (live_.empty()) return;
  live_.clear();
  write_all("\n");
}

}  // namespace quintet::observe
