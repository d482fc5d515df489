// Reads a checkpoint: any region of any tensor, from the pieces that have it. What is read is verified; a
// damaged, truncated or missing file is a UserError that names it. Any thread may read. Large parts come from
// the disk past the page cache, unless the file is there.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "base/file_system.h"
#include "checkpoint/manifest.h"

namespace quintet::checkpoint {

inline constexpr int kReadThreads = 4;  // that keep a disk busy while others verify

class Reader {
 public:
  // Reads the manifest only.
  explicit Reader(base::Path folder);
  // The same with the manifest's text, which somebody else has read.
  Reader(base::Path folder, std::string_view manifest);

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

  // Checks that every file is there, with the size and the header that the manifest says. Returns the bytes
  // of the headers.
  int64_t verify_headers();
  // Reads and checks everything. Returns the bytes read.
  int64_t verify();

  int64_t bytes_read() const { return bytes_read_; }  // of tensors, in whole chunks

 private:
  struct OpenFile {
    OpenFile(const base::Path& path, bool bypass) : file(path, bypass), bypasses_cache(bypass) {}
    const base::InputFile file;
    const bool bypasses_cache;
  };
  using File = std::shared_ptr<const OpenFile>;
  // The file, with its size and header checked. The last ones stay open.
  File opened(int file);
  // Bytes of a file that one checksum covers.
  struct Chunk {
    const SavedTensor* tensor;
    int file;
    int64_t position, bytes;
    uint64_t sum;
  };
  static Chunk chunk_of(const SavedTensor& tensor, const Piece& piece, size_t index, int64_t chunk_bytes);
  // They, checked, in `buffer`.
  std::span<const std::byte> load(const Chunk& chunk, const base::DirectBuffer& buffer);
  // The same at their own place, where they come from the page cache; false: from elsewhere, use load().
  bool load_in_place(const Chunk& chunk, std::span<std::byte> out);
  void require_sum(const Chunk& chunk, const base::InputFile& file, std::span<const std::byte> bytes);
  // Calls fn(buffer) with a buffer for a chunk that nothing else uses.
  template <class Fn>
  void with_buffer(const Fn& fn);

  [[noreturn]] void refuse_cover(const SavedTensor& tensor) const;

  const base::Path folder_;
  const Manifest manifest_;
  std::atomic<int64_t> bytes_read_ = 0;
  std::mutex mutex_;                        // of the following
  std::vector<std::pair<int, File>> open_;  // the last one used at the end
  std::set<int> checked_;
  std::vector<base::DirectBuffer> buffers_;  // not in use
};

}  // namespace quintet::checkpoint
