#include "config/unsupported.h"

#include <array>

namespace quintet::config {
namespace {

constexpr std::array<UnsupportedKey, 1> kUnsupportedKeys = {{
    {"memory.offload", "\"none\""},
}};

constexpr std::string_view kNotYet = "is not supported yet";
// The first match applies.
constexpr std::array<RefusedWord, 6> kRefusedWords = {{
    {"run.backend", "gloo", kNotYet, ""},
    {"run.backend", "nccl", "is used between GPUs automatically, with any backend", "", false},
    {"precision.compute", "fp8", "applies to linear layers only: set precision.linear = \"fp8-delayed\"",
     "bf16", false},
    {"precision.linear", "fp8", "is several recipes: name one", "fp8-delayed", false},
    {"precision.linear", "nvfp4", kNotYet, "mxfp8"},
    {"precision.compute", "tf32", "is a mode of f32 matmuls: set precision.tf32 = true with compute f32",
     "f32", false},
}};

}  // namespace

std::span<const UnsupportedKey> unsupported_keys() { return kUnsupportedKeys; }

const RefusedWord* find_refused_word(std::string_view key, std::string_view word) {
  for (const RefusedWord& other : kRefusedWords)
    if (key.starts_with(other.key) && word == other.word) return &other;
  return nullptr;
}

}  // namespace quintet::config
