// Tensors by name, wherever they are stored: files of safetensors, of PyTorch, or a checkpoint of ours.
// Opening reads names, types and shapes only; elements are read where they are wanted.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "checkpoint/region.h"
#include "checkpoint/safetensors.h"

namespace quintet::hf {

using checkpoint::Region;
using checkpoint::TensorInfo;

class TensorSource {
 public:
  virtual ~TensorSource() = default;
  const base::Path& path() const { return path_; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }  // by name
  const TensorInfo* find(std::string_view name) const;                 // null when absent

  // Elements [first, ...) in row-major order, as many as `out` has room for, in the tensor's dtype.
  virtual void read(const TensorInfo& tensor, int64_t first, std::span<std::byte> out) = 0;
  // The elements of a region, which may have another shape of as many elements.
  virtual void read(const TensorInfo& tensor, const Region& region, std::span<std::byte> out);

  // Whether files store the last two dims swapped, as MXFP4 (GPT-OSS) has its matrices, and elements in the
  // order in which they are stored: what is read in another order costs a read per row.
  virtual bool is_transposed(const TensorInfo&) const { return false; }
  virtual void read_stored(const TensorInfo& tensor, int64_t first, std::span<std::byte> out) {
    read(tensor, first, out);
  }

  // All of a tensor in row-major order, in blocks of about kStreamBytes.
  static constexpr int64_t kStreamBytes = int64_t{8} << 20;
  using Block = std::function<void(std::span<const std::byte> elements)>;
  virtual void stream(const TensorInfo& tensor, const Block& block);

  // Bytes taken from files so far, headers not counted.
  virtual int64_t bytes_read() const = 0;
  // The file that a tensor is in, for messages.
  virtual std::string file_of(const TensorInfo&) const { return path_.string(); }
  virtual std::string kind() const = 0;  // "safetensors"

 protected:
  explicit TensorSource(base::Path path) : path_(std::move(path)) {}
  // Sorts; a name that comes twice is a UserError.
  void set_tensors(std::vector<TensorInfo> tensors);
  size_t index_of(const TensorInfo& tensor) const { return static_cast<size_t>(&tensor - tensors_.data()); }

 private:
  base::Path path_;
  std::vector<TensorInfo> tensors_;
};

// Files that are read in parts. Few are open at a time.
class OpenFiles {
 public:
  explicit OpenFiles(std::vector<base::Path> paths) : paths_(std::move(paths)) {}
  const base::Path& path(size_t file) const { return paths_[file]; }
  void read(size_t file, int64_t position, std::span<std::byte> out);
  int64_t bytes_read() const { return bytes_; }

 private:
  const base::InputFile& opened(size_t file);

  std::vector<base::Path> paths_;
  std::vector<std::pair<size_t, std::unique_ptr<base::InputFile>>> open_;  // the last used one is last
  int64_t bytes_ = 0;
};

// What a path names:
//   a folder with model.safetensors.index.json, pytorch_model.bin.index.json, or *.safetensors or *.bin files
//   a .safetensors, .bin, .pt or .pth file
//   a folder of PyTorch's distributed checkpoints (.metadata)
//   a checkpoint of ours, or a run folder with one
// Quantised tensors appear dequantised, without their scales: fp8 with block scales under their names, MXFP4
// (GPT-OSS) with "x_blocks" [..., r, c] as "x" [..., c, r]. UserError for anything else, with what was found.
std::unique_ptr<TensorSource> open_tensors(const base::Path& path);

// Of the path alone.
bool is_own_checkpoint(const base::Path& path);

}  // namespace quintet::hf
