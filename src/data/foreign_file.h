// Token files of other systems, mapped as they are: Megatron's .bin and .idx, and a .bin alone as nanoGPT
// writes it (16-bit ids, with or without the header of its speed runs). docs/formats/token_file.md
// describes both.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/checksum.h"
#include "base/file.h"
#include "data/corpus.h"

namespace quintet::data {

// The corpus at `path` (a prefix or either file) if another system wrote it; nothing otherwise. These
// files do not say how many ids there are: `vocab` is what the tokenizer has, and a token beyond it is an
// error when it is read. A `<prefix>.mask` next to Megatron's pair has the trained flags.
std::optional<Corpus> open_foreign_file(const base::Path& path, int64_t vocab);

// Writes Megatron's pair, document by document, one sequence each, and `<prefix>.mask` if any document has
// trained flags; a mask of an earlier pair is removed otherwise. Nothing is visible before finish().
class MegatronWriter {
 public:
  MegatronWriter(const base::Path& prefix, int64_t vocab);
  // Skips empty documents. `trained`: a flag (0 or 1) per id, or empty when all are trained. An id out of
  // range is a UserError.
  void add_document(std::span<const int32_t> ids, std::span<const uint8_t> trained = {});
  void finish();  // UserError when there are no tokens
  // XXH3-64 of .mask, for a manifest; nothing when there is none.
  std::optional<uint64_t> mask_checksum() const;
  int64_t tokens() const { return tokens_; }
  int64_t documents() const { return static_cast<int64_t>(lengths_.size()); }
  // Of the blocks of .bin, for the manifest next to it; after finish().
  const std::vector<uint64_t>& block_sums() const { return block_sums_; }

 private:
  base::Path prefix_;
  int64_t vocab_, tokens_ = 0;
  TokenWidth width_;
  base::AtomicFile bin_;
  std::optional<base::AtomicFile> mask_;
  base::Checksum mask_sum_;
  BlockSummer summer_;
  std::vector<uint64_t> block_sums_;
  std::vector<int32_t> lengths_;
  std::vector<std::byte> packed_;
  std::vector<uint8_t> flags_;
  void write_flags(std::span<const uint8_t> flags);
};

}  // namespace quintet::data
