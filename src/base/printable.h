// Text from outside (recipes, file names, generated tokens) made safe for a terminal.
#pragma once

#include <string>
#include <string_view>

namespace quintet::base {

// Replaces control characters, which could move the cursor, change the title or worse, by escapes like \\x1b.
// Line breaks and tabs stay. C1 controls, as single bytes or as UTF-8, are control characters too, and so are
// those that reverse what follows them (U+202A to U+202E, U+2066 to U+2069); other UTF-8 stays.
std::string printable(std::string_view text);

// The same for text that arrives in pieces, which may end within a UTF-8 character.
class PrintableStream {
 public:
  std::string add(std::string_view piece);
  std::string finish();  // what is held back

 private:
  std::string held_;
};

}  // namespace quintet::base
