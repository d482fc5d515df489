// Checksums of a token file by blocks, verified when a block is first read: a file that was damaged without a
// change of its size is noticed before its tokens are used, at the cost of one pass over what is read.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "base/file.h"

namespace quintet::data {

inline constexpr int64_t kChecksumBlock = int64_t{1} << 20;  // bytes; the last block may be shorter

// Sums of the blocks of a file that is written in pieces.
class BlockSummer {
 public:
  void add(std::span<const std::byte> bytes);
  std::vector<uint64_t> finish();

 private:
  std::optional<base::Checksum> sum_ = std::make_optional<base::Checksum>();
  int64_t held_ = 0;  // bytes in the block in progress
  std::vector<uint64_t> sums_;
};

class BlockChecksums {
 public:
  // `bytes` must outlive it; `name` is the file's, `remedy` what to do about a mismatch. UserError unless
  // there is one sum per block.
  BlockChecksums(std::string name, std::span<const std::byte> bytes, std::vector<uint64_t> sums,
                 std::string remedy = "copy the file again, or write it again with 'quintet prepare'");

  // Tells the system that the blocks of bytes [begin, end) that have not been verified will be read soon:
  // all of what verify() touches.
  void will_verify(int64_t begin, int64_t end) const;
  // Verifies the blocks of bytes [begin, end) that have not been verified. A mismatch is a UserError with the
  // block and both sums. Safe to call from several threads.
  void verify(int64_t begin, int64_t end) const;

 private:
  std::string name_, remedy_;
  std::span<const std::byte> bytes_;
  std::vector<uint64_t> sums_;
  mutable std::vector<std::atomic<bool>> verified_;
};

// The sums that the manifest of a token file (<prefix>.json, or manifest.json next to `quintet prepare`'s
// tokens.bin) has of the tokens in `file`; null when there is no manifest, or one without sums. UserError
// where it says that there are ids which a vocabulary does not have.
std::shared_ptr<const BlockChecksums> checksums_of_manifest(const base::Path& prefix, const std::string& file,
                                                            std::span<const std::byte> tokens, int64_t vocab);

// UserError when that manifest has another checksum of the trained flags next to it.
void verify_mask(const base::Path& prefix, std::span<const std::byte> mask);

// The sums of a whole file.
std::vector<uint64_t> block_sums(std::span<const std::byte> bytes, int threads = 1);
// What a manifest stores of them: one string of 16 hexadecimal digits per block.
std::string text_of_sums(std::span<const uint64_t> sums);

}  // namespace quintet::data
