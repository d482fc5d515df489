// A shard: the pieces that one rank writes, as a safetensors file that any reader opens. A piece that is a
// whole box has the box's shape, any other piece is one-dimensional. The header's metadata describes the
// pieces (region, checksums), so that the manifest is made of the headers alone.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/file_system.h"
#include "checkpoint/manifest.h"

namespace quintet::checkpoint {

// What a rank writes of a tensor.
struct ShardPiece {
  TensorInfo tensor;  // the whole
  Region region;
  int64_t bytes() const { return region.count * base::size_of(tensor.dtype); }
};

// Fills `out` with elements [first, ...) of a piece's region; called in the order of the elements.
using PieceSource = std::function<void(size_t piece, int64_t first, std::span<std::byte> out)>;

struct ShardOptions {
  base::FileSystem* files = &base::FileSystem::real();
  int64_t step = 0;
  int64_t chunk_bytes = kChunkBytes;
  // Called after every write with the number of bytes, to limit the rate.
  std::function<void(int64_t bytes)> written = {};
  // The address of a piece whose elements are in memory as the file stores them, null for others. Those of
  // pieces that follow each other there are written without a copy.
  std::function<const std::byte*(size_t piece)> in_place = {};
};

// Writes the pieces in the given order, larger elements first, and flushes the file to disk. Large files are
// written in blocks by another thread, while this one fills the next block, or its checksums if it is in
// place.
inline constexpr int64_t kLargestHeader = int64_t{100}
                                          << 20;  // of a shard, without its length: the format's limit
inline constexpr int64_t kLengthBytes = 8;        // before the header
inline constexpr int64_t kWriteBlock = int64_t{8} << 20;
void write_shard(const base::Path& path, const std::vector<ShardPiece>& pieces, const PieceSource& source,
                 const ShardOptions& options);

// The bytes that the file will have.
int64_t shard_bytes(const std::vector<ShardPiece>& pieces, const ShardOptions& options);

std::string shard_name(int64_t rank);  // "rank-00003.safetensors"
// Of tensors that are never updated: later checkpoints link the same file.
std::string frozen_name(int64_t rank);  // "frozen-00003.safetensors"

// A shard as its header describes it.
struct ShardContents {
  ShardFile file;
  std::vector<SavedTensor> tensors;  // one for each piece, in the order of the file; Piece::file is 0
};
// UserError when the file is not a complete shard with these chunks, and of the step if one is given.
ShardContents read_shard(const base::Path& path, std::optional<int64_t> step,
                         int64_t chunk_bytes = kChunkBytes);

// Makes a manifest of shards, one after the other.
class ManifestBuilder {
 public:
  ManifestBuilder(int64_t step, Json run);
  void add(ShardContents shard);
  Manifest finish();  // sorts the tensors by name

 private:
  Manifest manifest_;
  std::unordered_map<std::string, size_t> places_;  // of tensors
};

}  // namespace quintet::checkpoint
