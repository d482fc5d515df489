// Reads a checkpoint: any region of any tensor, from the pieces that have it. What is read is verified; a
// damaged, truncated or missing file is a UserError that names it.
#pragma once

#include <memory>
#include <set>

#include "base/file_system.h"
#include "checkpoint/manifest.h"

namespace quintet::checkpoint {

class Reader {
 public:
  // Reads the manifest only.
  explicit Reader(base::Path folder);

  const base::Path& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }

  // Elements `wanted` of a tensor, in its dtype. Reads every chunk that has some of them once, through one
  // buffer of a chunk.
  void read(const SavedTensor& tensor, const Region& wanted, std::span<std::byte> out);

  // Reads and checks everything. Returns the bytes read.
  int64_t verify();

 private:
  // The file, with its size and header checked.
  const base::InputFile& opened(int file);
  // A chunk of a piece, checked.
  std::span<const std::byte> chunk(const SavedTensor& tensor, const Piece& piece, size_t index);

  [[noreturn]] void refuse_cover(const SavedTensor& tensor) const;

  base::Path folder_;
  Manifest manifest_;
  std::unique_ptr<base::InputFile> file_;
  int current_ = -1;
  std::set<int> checked_;
  std::vector<std::byte> buffer_;
};

}  // namespace quintet::checkpoint
