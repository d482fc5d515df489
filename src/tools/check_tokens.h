// `quintet data check`: compares every id of token files with a tokenizer, once. Of files without checksums
// it leaves those of their blocks beside them, so that a run need not read the whole before its first step: a
// block is verified when it is first read.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace quintet::tools {

struct TokenCheckOptions {
  std::vector<std::string> inputs;  // token files, and folders of them
  std::string tokenizer;
  int threads = 1;
  std::function<void(int64_t done, int64_t total)> progress = {};  // bytes of all files
};

struct CheckedFile {
  base::Path path;
  int64_t tokens = 0;
  int32_t largest = 0;      // id
  base::Path written = {};  // its new checksums; empty: it had some, or needs none
};

// UserError for the first file that is damaged or has an id beyond the tokenizer's, and for inputs that are
// no token files.
std::vector<CheckedFile> check_token_files(const TokenCheckOptions& options);

}  // namespace quintet::tools
