// What other systems call the keys and values of a recipe: Megatron-LM, DeepSpeed, FSDP2 and TorchTitan,
// Transformers, Axolotl, LLaMA-Factory, nanoGPT and others.
#pragma once

#include <span>
#include <string_view>

namespace quintet::config {

struct KeyElsewhere {
  std::string_view theirs;  // the last part of a key or, where that alone is ambiguous, the whole key
  std::string_view ours;
};

// Sorted by `theirs`.
std::span<const KeyElsewhere> keys_elsewhere();

struct WordElsewhere {
  std::string_view key;     // ours, or a prefix of several
  std::string_view theirs;  // in lower case
  std::string_view ours;
};
std::span<const WordElsewhere> words_elsewhere();

}  // namespace quintet::config
