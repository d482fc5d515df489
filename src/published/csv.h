// Comma-separated tables with a header line. Fields may be quoted; a doubled quote inside stands for one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace quintet::published {

struct Csv {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;  // each as long as the header

  bool has(std::string_view column) const;
  // The field of a row by column name. Throws UserError if the table has no such column.
  const std::string& at(size_t row, std::string_view column) const;
};

// Throws UserError, naming the line, if a row's length differs from the header's or a quote is never closed.
// Skips blank lines. `name` identifies the table in messages.
Csv parse_csv(std::string_view text, std::string_view name);

}  // namespace quintet::published
