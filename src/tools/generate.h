// Generates text from the weights of a checkpoint. Runs the whole window through the model for each token;
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
  std::optional<int64_t> step;  // of a run folder: the checkpoint of this step instead of the newest
  bool averages = false;        // the averages of the weights (optimizer.ema) instead of the weights
  // Empty: the device of the run, or the CPU if that device is not available.
  std::optional<config::DeviceKind> device;
  // Receives a note when the device differs from that of the run without having been requested.
  std::function<void(const std::string&)> log;
  // Receives the text piece by piece; a piece may end within a character.
  std::function<void(std::string_view)> on_text;
};

// Loads a checkpoint, or the newest one of a run folder, and continues the prompt on one rank, whatever the
// layout that saved it. Returns the new text without the prompt. When the window (data.seq_len) is full, it
// slides.
std::string generate(const base::Path& path, const GenerateOptions& options);

// Approximate FLOPs of generating `tokens` tokens.
double generate_flops(const config::Recipe& recipe, int64_t parameters, int64_t tokens);

// Sample text of a finished run (recipe.run.dir), safe to print on a terminal. Empty unless tokens are bytes
// and generating takes at most a few seconds.
std::optional<std::string> sample_of(const config::Recipe& recipe, int64_t tokens);

}  // namespace quintet::tools
