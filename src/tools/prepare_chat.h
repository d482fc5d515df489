// The work behind `quintet prepare --chat` and `quintet data show`: conversations to tokens and trained
// flags.
//
//   DIR/tokens.bin, .idx    Megatron's pair, a document per example; of pairs two: chosen, rejected
//   DIR/tokens.mask         a byte per token, 1 where it is trained; not for prompts
//   DIR/columns.jsonl       of prompts: the other fields of each, for rewards
//   DIR/manifest.json       what the documents are, sources, tokenizer, counts; written last
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "chat/mask.h"

namespace quintet::tools {

struct ChatSource {
  std::vector<std::string> inputs;  // .jsonl files and folders of them
  std::string tokenizer;
  std::string chat_template;  // a file, or the name of one of the tokenizer's; empty: the tokenizer's choice
  std::string format;         // empty: detected from the first line of each file
  chat::MaskOptions mask;
};

struct PrepareChatOptions {
  ChatSource source;
  base::Path out;            // the folder
  int64_t max_tokens = 0;    // longer documents are dropped; 0: none
  bool split_turns = false;  // one document for each message of the assistant, which alone is trained
  bool overwrite = false;
  bool skip_damaged = false;  // else a line that cannot be used ends the work
  int threads = 1;
  std::function<void(int64_t done, int64_t total)> progress;  // bytes of input
};

struct PreparedChat {
  std::string kind;  // "examples", "pairs", "prompts"
  int64_t files = 0, records = 0, documents = 0, tokens = 0, trained = 0;
  int64_t damaged = 0, too_long = 0, straddling = 0;
  std::vector<std::string> first_damage;  // messages with file and line, at most ten
};

// Nothing is visible before all is written. UserError with file and line for a bad example, and when the
// template never trains a token that ends a turn.
PreparedChat prepare_chat(const PrepareChatOptions& options);

// The first `count` documents of chat data, encoded as prepare_chat would. Examples that cannot be used
// are a UserError with file and line.
std::vector<chat::Encoded> encode_first(const ChatSource& source, size_t count);

}  // namespace quintet::tools
