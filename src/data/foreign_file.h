// Token files of other systems, mapped as they are: Megatron's .bin and .idx, and a .bin alone as nanoGPT
// writes it (16-bit ids, with or without the header of its speed runs). docs/formats/token_file.md
// describes both.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/file.h"
#include "data/corpus.h"

namespace quintet::data {

// The corpus at `path` (a prefix or either file) if it is of another system; nothing if it is not. These
// files do not say how many ids there are: `vocab` is what the tokenizer has, and a token beyond it is an
// error when it is read.
std::optional<Corpus> open_foreign_file(const base::Path& path, int64_t vocab);

// Writes Megatron's pair, document by document, one sequence each. Nothing is visible before finish().
class MegatronWriter {
 public:
  MegatronWriter(const base::Path& prefix, int64_t vocab);
  void add_document(std::span<const int32_t> ids);  // skips empty ones; an id out of range is a UserError
  void finish();                                    // UserError when there are no tokens
  int64_t tokens() const { return tokens_; }
  int64_t documents() const { return static_cast<int64_t>(lengths_.size()); }

 private:
  base::Path prefix_;
  int64_t vocab_, tokens_ = 0;
  TokenWidth width_;
  base::AtomicFile bin_;
  std::vector<int32_t> lengths_;
  std::vector<std::byte> packed_;
};

}  // namespace quintet::data
