// Comma-separated tables with a header line: fields may be quoted, a doubled quote inside stands for one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace quintet::published {

struct Csv {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;  // each as long as the header

  bool has(std::string_view column) const;
  // The field of a row by the column's name; a UserError where the table has no such column.
  const std::string& at(size_t row, std::string_view column) const;
};

// A UserError names the line where a row is not as long as the header or a quote is never closed. Blank lines
// are passed over. `name` is the table's, for messages.
Csv parse_csv(std::string_view text, std::string_view name);

}  // namespace quintet::published
