// Token files: <prefix>.bin (tokens) with <prefix>.idx (their index). docs/formats/token_file.md describes
// the format. Opening maps both files and reads only the index, so the cost does not grow with the tokens;
// verify_token_file reads every token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/checksum.h"
#include "base/file.h"
#include "data/corpus.h"

namespace quintet::data {

// `path` is the prefix, either file of the pair, or a folder with tokens.bin and tokens.idx (`quintet
// prepare`).
bool is_token_file(const base::Path& path);
base::Path token_file_prefix(const base::Path& path);

// Validates magic, version, sizes, offsets and the checksum of the index; every failure is a UserError. A
// damaged block of tokens, or a token outside the vocabulary, is detected when it is read, or by
// verify_token_file.
Corpus open_token_file(const base::Path& path);

// Opens the pair, then checks every token against the vocabulary and the checksum of all tokens.
Corpus verify_token_file(const base::Path& path);

// Writes a pair document by document. Nothing is visible before finish(). .bin appears before .idx, and .idx
// contains the checksum and size of .bin, so the reader rejects a pair torn by a crash in between.
class TokenFileWriter {
 public:
  TokenFileWriter(const base::Path& prefix, int64_t vocab);
  void add_document(std::span<const int32_t> ids);  // skips empty ones; an id out of range is a UserError
  void finish();                                    // UserError when there are no tokens

 private:
  base::Path prefix_;
  int64_t vocab_;
  TokenWidth width_;
  base::AtomicFile bin_;
  base::Checksum checksum_;
  BlockSummer blocks_;
  std::vector<uint64_t> offsets_ = {0};
  std::vector<std::byte> packed_;
};

}  // namespace quintet::data
