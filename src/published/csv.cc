#include "published/csv.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace quintet::published {

bool Csv::has(std::string_view column) const {
  return std::find(header.begin(), header.end(), column) != header.end();
}

const std::string& Csv::at(size_t row, std::string_view column) const {
  const auto found = std::find(header.begin(), header.end(), column);
  if (found == header.end())
    base::fail_user("the table has no column '{}'; its columns are {}", column, fmt::join(header, ", "));
  return rows[row][static_cast<size_t>(found - header.begin())];
}

Csv parse_csv(std::string_view text, std::string_view name) {
  Csv table;
  std::vector<std::string> fields;
  std::string field;
  bool quoted = false, was_quoted = false;
  size_t line = 1, opened = 1, row_line = 1;
  const auto end_row = [&] {
    const bool blank = fields.empty() && field.empty() && !was_quoted;
    if (!blank) {
      fields.push_back(std::move(field));
      if (table.header.empty()) {
        table.header = std::move(fields);
      } else if (fields.size() != table.header.size()) {
        base::fail_user("{}, line {}: {} fields, but the header has {}", name, row_line, fields.size(),
                        table.header.size());
      } else {
        table.rows.push_back(std::move(fields));
      }
    }
    fields.clear();
    field.clear();
    was_quoted = false;
    row_line = line + 1;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '"' && i + 1 < text.size() && text[i + 1] == '"')
        field += text[i++];
      else if (c == '"')
        quoted = false;
      else
        field += c;
    } else if (c == '"' && field.empty()) {
      quoted = was_quoted = true;
      opened = line;
    } else if (c == ',') {
      fields.push_back(std::move(field));
      field.clear();
      was_quoted = false;
    } else if (c == '\n') {
      end_row();
    } else if (c != '\r') {
      field += c;
    }
    if (c == '\n') ++line;
  }
  if (quoted) base::fail_user("{}, line {}: unterminated quote", name, opened);
  end_row();
  if (table.header.empty()) base::fail_user("{} is empty; expected a header line and rows", name);
  return table;
}

}  // namespace quintet::published
