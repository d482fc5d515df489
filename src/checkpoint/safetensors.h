// Reads and writes whole tensors in the safetensors format: an 8-byte header length, a JSON header with
// names, types, shapes and byte ranges, then the data.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/file.h"

namespace quintet::checkpoint {

struct TensorInfo {
  std::string name;
  base::DType dtype = base::DType::F32;
  std::vector<int64_t> shape;
  int64_t count() const;
  int64_t bytes() const { return count() * base::size_of(dtype); }
};

const char* safetensors_name(base::DType dtype);                            // "F32"
std::optional<base::DType> parse_safetensors_dtype(std::string_view text);  // empty when it is unknown

// Writes the tensors in the given order; `fill` provides the bytes of each. The file appears atomically:
// complete, or not at all.
void write_safetensors(const std::string& path, const std::vector<TensorInfo>& tensors,
                       const std::map<std::string, std::string>& metadata,
                       const std::function<void(size_t index, std::span<std::byte> out)>& fill);

// The header of a file as it is, dtypes that we have no type for included (F8_E4M3).
struct SafetensorsEntry {
  std::string name, dtype;
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // bytes of the file
};
struct SafetensorsHeader {
  std::vector<SafetensorsEntry> tensors;
  std::map<std::string, std::string> metadata;
};
// Reads the header only. UserError unless it is one of a file of that size, whose tensors cover all data.
SafetensorsHeader read_safetensors_header(const std::string& path);
// The same for the header's text, which ends at byte `data_begin` of a file of `file_bytes`.
SafetensorsHeader parse_safetensors_header(std::string_view text, int64_t data_begin, int64_t file_bytes,
                                           const std::string& path);

// A memory-mapped file. Opening it validates every size and range; a file that contradicts its own header is
// a UserError.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const TensorInfo* find(const std::string& name) const;  // null when absent
  std::span<const std::byte> bytes(const TensorInfo& tensor) const;

 private:
  std::string path_;
  base::MappedFile file_;
  std::vector<TensorInfo> tensors_;
  std::vector<std::pair<int64_t, int64_t>> ranges_;  // of the file
  std::map<std::string, std::string> metadata_;
};

}  // namespace quintet::checkpoint
