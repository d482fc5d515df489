#include "config/tokenizer_size.h"

#include <map>
#include <mutex>

#include "base/error.h"
#include "base/error_codes.h"
#include "tokenizer/tokenizer.h"

namespace quintet::config {

TokenizerSize tokenizer_size(const std::string& name_or_path) {
  if (tokenizer::names_byte_tokenizer(name_or_path)) return {256, ""};
  static std::mutex mutex;
  static std::map<std::string, TokenizerSize> known;
  const std::lock_guard lock(mutex);
  if (const auto found = known.find(name_or_path); found != known.end()) return found->second;
  TokenizerSize size;
  try {
    size.ids = tokenizer::load_tokenizer(name_or_path)->vocab_size();
  } catch (const base::UserError& error) {
    size.error = base::without_code(error.what());  // the problem has one of its own
    return size;                                    // the file may appear before the next question
  }
  return known[name_or_path] = size;
}

int64_t ids_needed(const std::string& name_or_path, Family family) {
  if (family == Family::Bert && tokenizer::names_byte_tokenizer(name_or_path)) return kByteMask + 1;
  return tokenizer_size(name_or_path).ids;
}

}  // namespace quintet::config
