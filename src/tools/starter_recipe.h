// The recipe that `quintet init` writes.
#pragma once

#include <cstdint>
#include <string>

#include "base/file.h"

namespace quintet::tools {

inline constexpr const char* kDefaultPreset = "llama-tiny";
inline constexpr int64_t kDefaultSteps = 200;

// Empty or 0: chosen; device is "cpu" or "cuda".
struct RecipeWishes {
  std::string name, model, data, device;
  int64_t ranks = 0, seq_len = 0, batch = 0, steps = 0;
};

// A commented recipe for a file in `folder`. wishes.data is relative to the working directory.
std::string starter_recipe(const RecipeWishes& wishes, const base::Path& folder);

}  // namespace quintet::tools
