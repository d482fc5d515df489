// Text from the weights of a finished run: the whole window through the model for each token, no cache.
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
  double temperature = 0.8;  // 0: always the likeliest token
  uint64_t seed = 0;         // the same seed gives the same text
  int threads = 1;
  // Where the model runs. Not given: where the run was trained, or the CPU where that device is not here.
  std::optional<config::DeviceKind> device;
  // Told where the text is made, if that is not where the run was trained and was not asked for.
  std::function<void(const std::string&)> log;
  // Gets the text piece by piece as it comes; a piece may end within a character.
  std::function<void(std::string_view)> on_text;
};

// Loads recipe.toml and model.safetensors of a run folder and continues the prompt on one rank, whatever
// layout the run had. Returns the new text without the prompt. When the window (data.seq_len) is full, it
// slides.
std::string generate(const base::Path& run_folder, const GenerateOptions& options);

// Multiplications and additions that generating `tokens` tokens takes, about.
double generate_flops(const config::Recipe& recipe, int64_t parameters, int64_t tokens);

// What the model of a finished run (recipe.run.dir) writes, fit for a terminal. Only where a token is a byte,
// and where it takes seconds at most; else nothing.
std::optional<std::string> sample_of(const config::Recipe& recipe, int64_t tokens);

}  // namespace quintet::tools
