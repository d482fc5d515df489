// The work behind `quintet prepare`: text to token files.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/file.h"

namespace quintet::tools {

struct PrepareOptions {
  std::vector<std::string> inputs;  // files and folders, as data.path has them
  std::string tokenizer;
  std::string out;             // prefix of .bin, .idx and .json
  std::string field = "text";  // of JSON lines
  std::string end;             // token after each document; empty: none
  bool overwrite = false;
  bool skip_damaged = false;  // else a damaged line ends the work
  int threads = 1;
  std::function<void(int64_t done, int64_t total)> progress;  // bytes of input
};

struct Prepared {
  int64_t files = 0, documents = 0, empty = 0, damaged = 0, bytes = 0, tokens = 0;
  std::vector<int64_t> lengths;           // of documents, sorted
  std::vector<std::string> first_damage;  // messages, at most ten
};

// Encodes documents in parallel and writes them in order as Megatron's pair, with a manifest of sources,
// tokenizer and counts beside it. Nothing is visible before all is written; the manifest comes last.
Prepared prepare(const PrepareOptions& options);

}  // namespace quintet::tools
