// Options of verbs that read conversations.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "tools/show_data.h"

namespace quintet::cli {

// --chat-template, --format, --loss, --end-of-turn.
struct ChatOptions {
  tools::ChatSource source;
  std::string loss = "assistant";
  void add_to(CLI::App& command);
  tools::ChatSource get() const;
};

}  // namespace quintet::cli
