// Regular expressions with Unicode classes and look-around, by PCRE2 with its just-in-time compiler. Its
// classes are those of the Unicode version of the installed library.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace quintet::tokenizer {

class Regex {
 public:
  // UserError with the position when the expression is not one that PCRE2 accepts.
  explicit Regex(std::string_view expression);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  struct Match {
    size_t begin, end;  // npos, npos: none
    explicit operator bool() const { return begin != std::string_view::npos; }
  };
  // The first match at or after `from`, in valid UTF-8. Safe for several threads.
  Match find(std::string_view text, size_t from) const;

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

}  // namespace quintet::tokenizer
