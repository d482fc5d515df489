// Options of verbs that read conversations.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "tools/prepare_chat.h"

namespace quintet::cli {

// --template, --format, --loss, --end-of-turn.
struct ChatOptions {
  tools::ChatSource source;
  std::string loss = "assistant";
  void add_to(CLI::App& command);
  tools::ChatSource get() const;
};

// `quintet prepare --chat`.
struct PrepareChatVerb {
  ChatOptions chat;
  tools::PrepareChatOptions prepare;
  bool enabled = false;
  void add_to(CLI::App& command);
  // With the options that all of `quintet prepare` has.
  int run(const std::vector<std::string>& inputs, const std::string& tokenizer, const std::string& out,
          bool overwrite, bool skip_damaged);
};

}  // namespace quintet::cli
