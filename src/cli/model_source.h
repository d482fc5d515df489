// The options of verbs that run a finished model.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "generate/source.h"

namespace quintet::cli {

struct ModelSourceOptions {
  std::string folder, device, dtype, tokenizer;
  int64_t step = -1;  // -1: the newest
  int64_t tp = 0;     // 0: that of the recipe
  bool averages = false;

  void add_to(CLI::App& command);
  generate::SourceOptions options() const;
};

}  // namespace quintet::cli
