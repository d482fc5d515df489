// Text for a terminal of limited width. Every UTF-8 character counts as one column.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace quintet::base {

size_t columns_of(std::string_view text);

// The longest prefix of at most `columns` columns; never splits a character.
std::string_view first_columns(std::string_view text, size_t columns);

// The text, or as much of it as fits into `columns` columns with "..." at its end.
std::string shortened(std::string_view text, size_t columns);

// Breaks lines at spaces so that none has more than `width` columns; a longer word, such as a path, has a
// line of its own, or is broken with `break_words`.
// Lines after the first of each input line start with `indent` spaces. Breaks in the text stay.
std::string wrapped(std::string_view text, size_t width, size_t indent = 0, bool break_words = false);

// Where a line of a table or with a label continues when it is wrapped: below its last column in the left
// three quarters of the width, which begins after at least two spaces; otherwise 4 after its first character.
size_t hanging_indent(std::string_view line, size_t width);

}  // namespace quintet::base
