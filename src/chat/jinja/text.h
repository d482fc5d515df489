// Strings as Python sees them: code points, white space, case, and how values are printed.
#pragma once

#include <string>
#include <string_view>

#include "chat/jinja/value.h"

namespace quintet::chat::jinja {

int64_t count_code_points(std::string_view text);
// The byte at which code point `index` begins; the size of the text from its number of code points on.
size_t byte_of_code_point(std::string_view text, int64_t index);

bool is_space(char32_t code);  // str.isspace(), and \s of `re`
enum class Side { Left, Right, Both };
// Removes white space, or the characters of `set`.
std::string_view strip(std::string_view text, Side side = Side::Both);
std::string_view strip_set(std::string_view text, std::string_view set, Side side);

// Unicode 14.0, with the mappings of one character to several and the final sigma.
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);  // str.title()
std::string capitalize(std::string_view text);
std::string swap_case(std::string_view text);
std::string case_fold(std::string_view text);
enum class CharTest { Alnum, Alpha, Ascii, Decimal, Digit, Lower, Numeric, Printable, Space, Title, Upper };
bool all_characters(std::string_view text, CharTest test);  // str.isalnum() and similar
bool is_word_character(char32_t code);                      // \w of `re`

std::string float_text(double value);  // repr() of a float
std::string str_of(const Value& value);
std::string repr_of(const Value& value);
std::string escape_html(std::string_view text);  // &amp; &lt; &gt; &#34; &#39;
// What adding, joining and formatting make of an operand of escaped text.
std::string escaped(const Value& value);

struct JsonStyle {
  bool ensure_ascii = false, sort_keys = false, spread = false;
  std::string indent;  // of each level, when spread over lines
  std::string item_separator = ", ", key_separator = ": ";
};
std::string json_of(const Value& value, const JsonStyle& style);  // json.dumps()

}  // namespace quintet::chat::jinja
