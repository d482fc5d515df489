#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/regex.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <map>
#include <mutex>

#include "base/error.h"
#include "base/printable.h"
#include "tokenizer/oniguruma.h"
#include "tokenizer/unicode.h"

namespace quintet::tokenizer {
namespace {

// What a thread matches with: PCRE2's blocks are not shared between threads, and making one per search
// would cost more than most searches. One pair of offsets is enough for the whole match. The stack is used
// as far as a match needs it: a group that repeats over a long text takes some bytes for each repetition.
struct MatchBlock {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(size_t{32} << 10, size_t{256} << 20, nullptr);
  MatchBlock() { pcre2_jit_stack_assign(context, nullptr, stack); }
  ~MatchBlock() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
};
MatchBlock& thread_block() {
  thread_local MatchBlock block;
  return block;
}

pcre2_code* compile(const std::string& expression, int& error, size_t& position) {
  // $ and ^ match at line breaks, as in the engine that `tokenizers` uses.
  static pcre2_compile_context* const context = [] {
    auto* made = pcre2_compile_context_create(nullptr);
    pcre2_set_newline(made, PCRE2_NEWLINE_LF);
    return made;
  }();
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                                   PCRE2_UTF | PCRE2_MULTILINE, &error, &position, context);
  // Without the compiler the interpreter runs. The compiled code of PCRE2 10.42 goes back into atomic
  // groups that repeat: (?>a+|a){2} matches "aaa".
  if (code != nullptr && expression.find("(?>") == std::string::npos)
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return code;
}

// The code points of a category in the installed library's tables.
CodeSet library_set(std::string_view category_name) {
  int error = 0;
  size_t position = 0;
  pcre2_code* const code = compile(fmt::format("\\p{{{}}}+", category_name), error, position);
  QUINTET_CHECK(code != nullptr, "PCRE2 does not know the category {}", category_name);
  std::string text;
  for (char32_t c = 0; c <= 0x10FFFF; ++c)
    if (c < 0xD800 || c > 0xDFFF) append_utf8(c, text);
  std::vector<CodeRun> runs;
  pcre2_match_data* const data = thread_block().data;
  for (size_t from = 0; pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                                    PCRE2_NO_UTF_CHECK, data, nullptr) > 0;) {
    const size_t* const at = pcre2_get_ovector_pointer(data);
    const char *first = text.data() + at[0], *last = text.data() + last_char({text.data(), at[1]});
    runs.push_back({next_code(first), next_code(last)});
    from = at[1];
  }
  pcre2_code_free(code);
  return CodeSet::of(std::move(runs));
}

std::optional<CodeSet> category_gap(std::string_view category_name) {
  static std::mutex mutex;
  static std::map<std::string, std::optional<CodeSet>, std::less<>> known;
  const std::lock_guard lock(mutex);
  auto found = known.find(category_name);
  if (found == known.end()) {
    const CodeSet wanted = *property_set(category_name), has = library_set(category_name);
    found = known.emplace(category_name, std::nullopt).first;
    if (has.without(wanted).empty()) found->second = wanted.without(has);
  }
  return found->second;
}

}  // namespace

struct Regex::Code {
  pcre2_code* code = nullptr;
  std::string expression;
  ~Code() { pcre2_code_free(code); }
};

Regex::Regex(std::string_view expression) : code_(std::make_unique<Code>()) {
  code_->expression = expression;
  int error = 0;
  size_t position = 0;
  const std::string spelled = pcre2_spelling(expression, category_gap);
  code_->code = compile(spelled, error, position);
  if (code_->code == nullptr) {
    char message[256];
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof message);
    base::fail_user("the regular expression '{}' is not supported: {}", base::printable(expression), message);
  }
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

Regex::Match Regex::find(std::string_view text, size_t from) const {
  const MatchBlock& block = thread_block();
  const int found = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                                PCRE2_NO_UTF_CHECK, block.data, block.context);
  if (found == PCRE2_ERROR_NOMATCH) return {std::string_view::npos, std::string_view::npos};
  if (found < 0)
    base::fail_user("the regular expression '{}' needs too many steps on a text of {} bytes (PCRE2 error {})",
                    base::printable(code_->expression), text.size(), found);
  const size_t* offsets = pcre2_get_ovector_pointer(block.data);
  return {offsets[0], offsets[1]};
}

}  // namespace quintet::tokenizer
