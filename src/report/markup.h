// HTML text: escaping, the frame of a page, and the small parts that all pages share. A page is one file: its
// style and script are inside, and its content security policy forbids it to load anything.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/provenance.h"

namespace quintet::report {

// For text and for attributes in double quotes. Control characters other than newlines and tabs become
// U+FFFD, as do bytes that are not UTF-8.
std::string escaped(std::string_view text);

// JSON for a <script type="application/json">: no '<' can end the element.
std::string script_json(std::string_view json);

// `title` is plain text, `body` is HTML.
std::string page(std::string_view title, std::string_view body);

// Colours 0 to 9 of the style sheet, which differ between the light and the dark theme.
std::string colour(size_t index);

// A card of the page; `width` is "", "half", "third" or "quarter" of a wide screen.
std::string card(std::string_view title, std::string_view subtitle, std::string_view body,
                 std::string_view width = "");

// A figure that stands out: plain text, style is "", "good" or "bad".
struct Tile {
  std::string label, value, note, style;
};
std::string tiles(const std::vector<Tile>& list);

enum class Mark : uint8_t { Box, Line, Dash, Dot };
struct KeyItem {
  std::string name;
  std::string colour;  // CSS
  Mark mark = Mark::Box;
};
std::string key(const std::vector<KeyItem>& items);

// A table of plain text. Columns listed in `text` are aligned left; the first always is. `best` is the row to
// highlight, or -1.
std::string table(const std::vector<std::string>& head, const std::vector<std::vector<std::string>>& rows,
                  const std::vector<size_t>& text = {}, int best = -1);

// Terms with plain-text descriptions; empty ones are left out.
std::string facts(const std::vector<std::pair<std::string, std::string>>& list);

// A recipe's text with sections and keys set off.
std::string toml(std::string_view text);

}  // namespace quintet::report
