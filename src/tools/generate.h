// Generates text from the weights of a finished run. Runs the whole window through the model for each token;
// there is no KV cache.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/file.h"
#include "config/recipe.h"

namespace quintet::tools {

struct GenerateOptions {
  std::string prompt = "The ";  // at least one token
  int64_t tokens = 80;
  double temperature = 0.8;  // 0: always the most likely token
  uint64_t seed = 0;         // the same seed gives the same text
  int threads = 1;
  // Empty: the device of the run, or the CPU if that device is not available.
  std::optional<config::DeviceKind> device;
  // Receives a note when the device differs from that of the run without having been requested.
  std::function<void(const std::string&)> log;
  // Receives the text piece by piece; a piece may end within a character.
  std::function<void(std::string_view)> on_text;
};

// Loads recipe.toml and model.safetensors from a run folder and continues the prompt on one rank, regardless
// of the run's layout. Returns the new text without the prompt. When the window (data.seq_len) is full, it
// slides.
std::string generate(const base::Path& run_folder, const GenerateOptions& options);

// Approximate FLOPs of generating `tokens` tokens.
double generate_flops(const config::Recipe& recipe, int64_t parameters, int64_t tokens);

// Sample text of a finished run (recipe.run.dir), safe to print on a terminal. Empty unless tokens are bytes
// and generating takes at most a few seconds.
std::optional<std::string> sample_of(const config::Recipe& recipe, int64_t tokens);

}  // namespace quintet::tools
