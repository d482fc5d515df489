#include "report/markup.h"

#include <fmt/format.h>

#include <algorithm>

#include "report/embedded.h"

namespace quintet::report {
namespace {

// Bytes of the UTF-8 character at `at`; 0 if there is none.
size_t character(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char c = byte(at);
  const size_t length = c < 0x80                ? 1
                        : c >= 0xC2 && c < 0xE0 ? 2
                        : c >= 0xE0 && c < 0xF0 ? 3
                        : c >= 0xF0 && c < 0xF5 ? 4
                                                : 0;
  if (length == 0 || at + length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(at + i) & 0xC0) != 0x80) return 0;
  return length;
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  return first == std::string_view::npos ? std::string_view() : text.substr(first);
}

// Words that break into lines at spaces only, not at the hyphens of options.
std::string words(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string word = escaped(text.substr(0, end));
    out += word.find('-') == std::string::npos ? word : "<span class=\"word\">" + word + "</span>";
    if (end < text.size()) out += ' ';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t length = character(text, at);
    const char c = text[at];
    const bool control = length == 1 && ((c >= 0 && c < 0x20 && c != '\n' && c != '\t') || c == 0x7F);
    if (length == 0 || control)
      out += "\xEF\xBF\xBD";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else
      out += text.substr(at, length);
    at += std::max<size_t>(1, length);
  }
  return out;
}

std::string script_json(std::string_view json) {
  std::string out;
  for (const char c : json) out += c == '<' ? std::string("\\u003c") : std::string(1, c);
  return out;
}

std::string page(std::string_view title, std::string_view body) {
  std::string out;
  const std::string name = escaped(title);
  const std::pair<std::string_view, std::string_view> parts[] = {
      {"{{title}}", name}, {"{{style}}", kPageCss}, {"{{body}}", body}, {"{{script}}", kPageJs}};
  std::string_view rest = kPageHtml;
  for (const auto& [place, text] : parts) {
    const size_t at = rest.find(place);
    out += rest.substr(0, at);
    out += text;
    rest.remove_prefix(at + place.size());
  }
  return out + std::string(rest);
}

std::string colour(size_t index) { return fmt::format("var(--c{})", index % 10); }

std::string card(std::string_view title, std::string_view subtitle, std::string_view body,
                 std::string_view width) {
  std::string out = fmt::format("<section class=\"card{}{}\">\n<h2>{}</h2>\n", width.empty() ? "" : " ",
                                width, escaped(title));
  if (!subtitle.empty()) out += fmt::format("<p class=\"sub\">{}</p>\n", escaped(subtitle));
  return fmt::format("{}{}</section>\n", out, body);
}

std::string tiles(const std::vector<Tile>& list) {
  std::string out = "<div class=\"tiles\">\n";
  for (const Tile& t : list) {
    out += fmt::format("<div class=\"tile\"><span>{}</span><b{}>{}</b>", escaped(t.label),
                       t.style.empty() ? "" : fmt::format(" class=\"{}\"", t.style), escaped(t.value));
    if (!t.note.empty()) out += fmt::format("<small>{}</small>", escaped(t.note));
    out += "</div>\n";
  }
  return out + "</div>\n";
}

std::string key(const std::vector<KeyItem>& items) {
  std::string out = "<div class=\"key\">";
  for (const KeyItem& item : items) {
    const bool stroke = item.mark == Mark::Line || item.mark == Mark::Dash;
    const char* const kind = item.mark == Mark::Line   ? " class=\"line\""
                             : item.mark == Mark::Dash ? " class=\"dash\""
                             : item.mark == Mark::Dot  ? " class=\"dot\""
                                                       : "";
    out += fmt::format("<span><i{} style=\"{}:{}\"></i>{}</span>", kind,
                       stroke ? "border-color" : "background", item.colour, escaped(item.name));
  }
  return out + "</div>\n";
}

std::string table(const std::vector<std::string>& head, const std::vector<std::vector<std::string>>& rows,
                  const std::vector<size_t>& text, int best) {
  const auto is_text = [&](size_t column) {
    return std::find(text.begin(), text.end(), column) != text.end();
  };
  std::string out = "<div class=\"wide\"><table>\n";
  if (!head.empty()) {
    out += "<tr>";
    for (size_t c = 0; c < head.size(); ++c)
      out += fmt::format("<th{}>{}</th>", is_text(c) ? " class=\"text\"" : "", escaped(head[c]));
    out += "</tr>\n";
  }
  for (size_t r = 0; r < rows.size(); ++r) {
    out += static_cast<int>(r) == best ? "<tr class=\"best\">" : "<tr>";
    for (size_t c = 0; c < rows[r].size(); ++c)
      out += fmt::format("<td class=\"{}\">{}</td>", is_text(c) ? "text" : "nowrap", escaped(rows[r][c]));
    out += "</tr>\n";
  }
  return out + "</table></div>\n";
}

std::string facts(const std::vector<std::pair<std::string, std::string>>& list) {
  std::string out = "<dl>\n";
  for (const auto& [what, text] : list)
    if (!text.empty())
      out += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escaped(what),
                         what == "command" ? words(text) : escaped(text));
  return out + "</dl>\n";
}

std::string toml(std::string_view text) {
  std::string out = "<pre>";
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    const std::string_view start = trimmed(line);
    const size_t equals = line.find('=');
    if (start.starts_with('#'))
      out += fmt::format("<i>{}</i>\n", escaped(line));
    else if (start.starts_with('['))
      out += fmt::format("<b>{}</b>\n", escaped(line));
    else if (equals != std::string_view::npos)
      out += fmt::format("<i>{}</i>{}\n", escaped(line.substr(0, equals)), escaped(line.substr(equals)));
    else
      out += escaped(line) + "\n";
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out + "</pre>\n";
}

}  // namespace quintet::report
