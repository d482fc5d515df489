#include "base/wrap.h"

#include <algorithm>
#include <cstdint>

namespace quintet::base {
namespace {

bool begins_character(char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }

// One input line. Spaces inside it stay, except those where it is broken.
void wrap_line(std::string_view line, size_t width, size_t indent, bool break_words, std::string& out) {
  const std::string margin(indent, ' ');
  bool first = true;
  while (columns_of(line) + (first ? 0 : indent) > width) {
    const size_t room = width > (first ? 0 : indent) ? width - (first ? 0 : indent) : 1;
    size_t end = first_columns(line, room + 1).size();
    end = line.rfind(' ', end - 1);
    const size_t text = line.find_first_not_of(' ');
    if (end == std::string_view::npos || end < text) {  // a word wider than the line
      if (break_words) {
        const std::string_view part = first_columns(line, room);
        out += (first ? "" : margin) + std::string(part) + '\n';
        line.remove_prefix(part.size());
        first = false;
        continue;
      }
      end = line.find(' ', text);
    }
    if (end == std::string_view::npos) break;
    const size_t last = line.find_last_not_of(' ', end);
    out += (first ? "" : margin);
    out += line.substr(0, last + 1);
    const size_t next = line.find_first_not_of(' ', end);
    if (next == std::string_view::npos) return;
    out += '\n';
    line.remove_prefix(next);
    first = false;
  }
  out += first ? "" : margin;
  out += line;
}

}  // namespace

std::string shortened(std::string_view text, size_t columns) {
  // Without counting a megabyte: a character has at most 4 bytes.
  if (text.size() <= columns || (text.size() <= 4 * columns && columns_of(text) <= columns))
    return std::string(text);
  return std::string(first_columns(text, columns - 3)) + "...";
}

size_t columns_of(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), begins_character));
}

std::string_view first_columns(std::string_view text, size_t columns) {
  size_t taken = 0;
  for (size_t i = 0; i < text.size(); ++i)
    if (begins_character(text[i]) && taken++ == columns) return text.substr(0, i);
  return text;
}

std::string wrapped(std::string_view text, size_t width, size_t indent, bool break_words) {
  std::string out;
  while (true) {
    const size_t end = text.find('\n');
    wrap_line(text.substr(0, end), width, indent, break_words, out);
    if (end == std::string_view::npos) return out;
    out += '\n';
    text.remove_prefix(end + 1);
  }
}

size_t hanging_indent(std::string_view line, size_t width) {
  const size_t first = std::min(line.find_first_not_of(' '), line.size());
  size_t indent = first + 4;
  for (size_t i = first; i < line.size(); ++i) {
    const size_t column = columns_of(line.substr(0, i));
    if (column > width * 3 / 4) break;
    if (i >= 2 && line[i] != ' ' && line[i - 1] == ' ' && line[i - 2] == ' ' && i > first) indent = column;
  }
  return indent;
}

}  // namespace quintet::base
