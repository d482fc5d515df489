// The work behind `quintet data show`.
#pragma once

#include <string>
#include <vector>

#include "tools/prepare_chat.h"

namespace quintet::tools {

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
