// The bytes of a file in order, decompressed where its name ends in .gz or .zst, with memory that does not
// depend on its size.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/error.h"
#include "base/file.h"

namespace quintet::text {

enum class Compression { None, Gzip, Zstd };
Compression compression_of(const base::Path& path);
// The name without .gz or .zst: what the contents are.
base::Path without_compression(const base::Path& path);

// A compressed file whose contents cannot be restored, from here to its end. The message names the file.
class DamagedFile : public base::UserError {
 public:
  using base::UserError::UserError;
};

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // Fills `out` from the start and returns the number of bytes; 0 only at the end. Damage is thrown when all
  // bytes before it have been returned, so that what can be read does not depend on the sizes of reads.
  virtual size_t read(std::span<char> out) = 0;
  virtual void skip(int64_t bytes) = 0;  // no error at the end
  // Bytes of the file itself that were read, which progress is measured by.
  virtual int64_t consumed() const = 0;
  // XXH3 of the file itself once its end is reached; empty before, and if a part was skipped unread.
  virtual std::optional<uint64_t> checksum() const = 0;
};

std::unique_ptr<ByteStream> open_bytes(const base::Path& path);

}  // namespace quintet::text
