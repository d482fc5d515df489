// The work behind `quintet data show`.
#pragma once

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

// A document, and its tokens as runs that are trained or not.
struct ShownDocument {
  std::vector<int32_t> ids;
  std::vector<uint8_t> trained;  // a flag per id
  struct Run {
    bool trained = false;
    std::string text;
  };
  std::vector<Run> runs;
};

// Whether there are token files at `path`.
bool is_prepared(const base::Path& path);

// The first `count` documents of chat data (files of lines or rows, or a folder), or of prepared data (a
// folder, or a prefix of token files), whose manifest names the tokenizer unless the source does. UserError
// if neither names one.
std::vector<ShownDocument> show_data(ChatSource source, size_t count);

}  // namespace quintet::tools
