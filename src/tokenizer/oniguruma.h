// Regular expressions as `tokenizers` reads them, in PCRE2's spelling. The package uses Oniguruma, whose
// syntax looks like PCRE2's and means other things in places: (?m) lets '.' match line breaks, X{1,3}+
// repeats, '&&' intersects classes, \h is a hexadecimal digit. Every class is spelled out as code points of
// Unicode 16, so that nothing depends on the tables of the installed PCRE2; case is folded here as well.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tokenizer/code_set.h"

namespace quintet::tokenizer {

// Code points by which the installed PCRE2's \p{category} is too small; nothing when it is too large
// anywhere. `category` is a short spelling, such as "Lu".
using CategoryGap = std::optional<CodeSet> (*)(std::string_view category);

// For PCRE2_UTF | PCRE2_MULTILINE with line feeds as line ends, and without PCRE2_UCP. UserError with the
// place and the name of a construct that is not translated: back-references, named groups, conditions, \X,
// \K, ...
std::string pcre2_spelling(std::string_view expression, CategoryGap gap);

}  // namespace quintet::tokenizer
