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

constexpr std::string_view kLater = "is not yet supported in this version";
// The first that fits counts.
constexpr std::array<OtherWord, 5> kOtherWords = {{
    {"run.backend", "gloo", kLater, ""},
    {"run.backend", "nccl", "is what GPUs use by themselves, under each of these", "", false},
    {"precision.compute", "fp8", kLater, "bf16"},
    {"precision.", "fp8", kLater, ""},
    {"precision.compute", "tf32", "is a GPU's way to multiply f32: precision.tf32 = true beside it", "f32",
     false},
}};

}  // namespace

std::span<const LaterKey> later_keys() { return kLaterKeys; }

const OtherWord* find_other_word(std::string_view key, std::string_view word) {
  for (const OtherWord& other : kOtherWords)
    if (key.starts_with(other.key) && word == other.word) return &other;
  return nullptr;
}

}  // namespace quintet::config
