#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/regex.h"

#include <pcre2.h>

#include "base/error.h"
#include "base/printable.h"

namespace quintet::tokenizer {
namespace {

// A match block per thread: PCRE2's are not shared between threads, and making one per search would cost
// more than most searches. One pair of offsets is enough for the whole match.
pcre2_match_data* thread_match_data() {
  struct Block {
    pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
    ~Block() { pcre2_match_data_free(data); }
  };
  thread_local Block block;
  return block.data;
}

// In the engine that `tokenizers` uses, X{1,3}+ repeats X{1,3}; in PCRE2 it is possessive. From 1 up the
// repetition is X+; other bounds are refused.
std::string in_pcre2_spelling(std::string_view expression) {
  std::string result;
  for (size_t i = 0; i < expression.size(); ++i) {
    const size_t close = expression[i] == '{' ? expression.find('}', i) : std::string_view::npos;
    const bool escaped = i > 0 && expression[i - 1] == '\\';
    const bool bounds =
        close != std::string_view::npos && !escaped &&
        expression.substr(i + 1, close - i - 1).find_first_not_of("0123456789,") == std::string_view::npos;
    if (!bounds || close + 1 >= expression.size() || expression[close + 1] != '+') {
      result.push_back(expression[i]);
      continue;
    }
    if (!expression.substr(i + 1).starts_with("1,") && !expression.substr(i + 1).starts_with("1}"))
      base::fail_user(
          "the regular expression '{}' repeats {}; possessive repetition is supported only from 1 upwards",
          base::printable(expression), expression.substr(i, close + 2 - i));
    result.push_back('+');
    i = close + 1;
  }
  return result;
}

}  // namespace

struct Regex::Code {
  pcre2_code* code = nullptr;
  std::string expression;
  ~Code() { pcre2_code_free(code); }
};

Regex::Regex(std::string_view expression) : code_(std::make_unique<Code>()) {
  code_->expression = in_pcre2_spelling(expression);
  int error = 0;
  size_t position = 0;
  // $ and ^ match at line breaks, as in the engine that `tokenizers` uses.
  code_->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(code_->expression.data()), code_->expression.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &position, nullptr);
  if (!code_->code) {
    char message[256];
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof message);
    base::fail_user("the regular expression '{}' is not valid: {} at byte {}", base::printable(expression),
                    message, position);
  }
  pcre2_jit_compile(code_->code, PCRE2_JIT_COMPLETE);  // without it the interpreter runs
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

Regex::Match Regex::find(std::string_view text, size_t from) const {
  pcre2_match_data* data = thread_match_data();
  const int found = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                                PCRE2_NO_UTF_CHECK, data, nullptr);
  if (found == PCRE2_ERROR_NOMATCH) return {std::string_view::npos, std::string_view::npos};
  if (found < 0)
    base::fail_user("the regular expression '{}' needs too many steps on a text of {} bytes (PCRE2 error {})",
                    base::printable(code_->expression), text.size(), found);
  const size_t* offsets = pcre2_get_ovector_pointer(data);
  return {offsets[0], offsets[1]};
}

}  // namespace quintet::tokenizer
