// Token files: a pair <prefix>.bin (tokens) and <prefix>.idx (what they are). The format is in
// docs/formats/token_file.md. Opening maps the files and reads the index only, so it costs nothing for a
// large corpus; verify_token_file reads every token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/checksum.h"
#include "base/file.h"
#include "data/corpus.h"

namespace quintet::data {

// `path` may be the prefix or either file of the pair.
bool is_token_file(const base::Path& path);
base::Path token_file_prefix(const base::Path& path);

// Checks magic, version, sizes, offsets and the index's checksum; every fault is a UserError. A token beyond
// the vocabulary is found when it is read, or by verify_token_file.
Corpus open_token_file(const base::Path& path);

// Opens, compares the checksum of all tokens and checks each against the vocabulary.
Corpus verify_token_file(const base::Path& path);

// Writes a pair document by document. Nothing is visible before finish(); .bin appears before .idx, and .idx
// carries .bin's checksum and size, so a pair torn by a crash in between is refused by the reader.
class TokenFileWriter {
 public:
  TokenFileWriter(const base::Path& prefix, int64_t vocab);
  void add_document(
      std::span<const int32_t> ids);  // empty ones are left out; an id out of range is a UserError
  void finish();                      // a file without tokens is a UserError

 private:
  base::Path prefix_;
  int64_t vocab_;
  TokenWidth width_;
  base::AtomicFile bin_;
  base::Checksum checksum_;
  std::vector<uint64_t> offsets_ = {0};
  std::vector<std::byte> packed_;
};

}  // namespace quintet::data
