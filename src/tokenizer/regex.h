// Regular expressions as the `tokenizers` package reads them (oniguruma.h), by PCRE2 with its just-in-time
// compiler. Classes are those of Unicode 16 whatever version the installed library has.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace quintet::tokenizer {

class Regex {
 public:
  // UserError with the position when the expression is not valid, or is one that is not translated.
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
