#include "config/later.h"

#include <array>

namespace quintet::config {
namespace {

constexpr std::array<LaterKey, 4> kLaterKeys = {{
    {"model.hf", ""},
    {"memory.offload", "\"none\""},
    {"checkpoint.dir", ""},
    {"checkpoint.every", ""},
}};

struct LaterWord {
  std::string_view section_or_key, word;
};
constexpr std::array<LaterWord, 3> kLaterWords = {{
    {"run.backend", "gloo"},
    {"run.backend", "nccl"},
    {"precision.", "fp8"},
}};

}  // namespace

std::span<const LaterKey> later_keys() { return kLaterKeys; }

bool is_later_word(std::string_view key, std::string_view word) {
  for (const LaterWord& later : kLaterWords)
    if (key.starts_with(later.section_or_key) && word == later.word) return true;
  return false;
}

}  // namespace quintet::config
