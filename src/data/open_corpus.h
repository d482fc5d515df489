// Opens what data.path may name: token files (ours, Megatron's, nanoGPT's) and folders of them, one or
// several as one set; a .npy file; a folder that Hugging Face `datasets` saved; or text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"
#include "data/corpus.h"
#include "data/text_source.h"
#include "tokenizer/tokenizer.h"

namespace quintet::data {

struct Opened {
  Corpus corpus;
  std::string reading;  // what was read and skipped; empty for token files
};

// Whether the paths name tokens: a token file, a .npy file, a prepared folder or a datasets folder, rather
// than text.
bool is_tokenised(const std::vector<base::Path>& paths);

// Token files are mapped; those of up to `checked_tokens` tokens are verified as a whole, with their
// checksums. Text is tokenised into memory. UserError when token files and text are listed together, and when
// the manifest next to it names a tokenizer with other tokens.
Opened open_corpus(const std::vector<base::Path>& paths, const tokenizer::Tokenizer& tokenizer,
                   int64_t checked_tokens, const TextOptions& options = {});

// The token files that the paths name, in their order; nothing if any path is something else (.npy files
// included).
std::vector<base::Path> token_files(const std::vector<base::Path>& paths);

}  // namespace quintet::data
