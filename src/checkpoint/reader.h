// Reads a checkpoint: any region of any tensor, from the pieces that have it. What is read is verified; a
// damaged, truncated or missing file is a UserError that names it.
#pragma once

#include <functional>
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

  // The tensor of a name; UserError with the nearest name that the checkpoint has when there is none.
  const SavedTensor& at(std::string_view name) const;

  // Elements `wanted` of a tensor, in its dtype. Reads every chunk that has some of them once, through one
  // buffer of a chunk.
  void read(const SavedTensor& tensor, const Region& wanted, std::span<std::byte> out);

  // The same for elements [first, ...) of the whole tensor in row-major order, as many as `out` has room for.
  void read(const SavedTensor& tensor, int64_t first, std::span<std::byte> out);
  // All of a tensor in row-major order, in blocks of at most `block_bytes`: two buffers, whatever its size.
  using Block = std::function<void(int64_t first, std::span<const std::byte> elements)>;
  void stream(const SavedTensor& tensor, const Block& block, int64_t block_bytes = kChunkBytes);

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
