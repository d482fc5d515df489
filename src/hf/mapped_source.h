#pragma once

#include "hf/strided.h"

namespace quintet::hf {

// A model under our names, such as a checkpoint, as the files of its family would have it.
class MappedSource final : public TensorSource {
 public:
  MappedSource(std::unique_ptr<TensorSource> ours, NameMap map);
  // Not supported: blocks are made in order.
  void read(const TensorInfo& tensor, int64_t first, std::span<std::byte> out) override;
  using TensorSource::read;
  void stream(const TensorInfo& tensor, const Block& block) override;
  int64_t bytes_read() const override { return ours_->bytes_read(); }
  std::string kind() const override { return ours_->kind(); }
  const NameMap& map() const { return map_; }
  // Whether a tensor holds states of the model, such as router biases, and no weights.
  bool is_state(const TensorInfo& tensor) const;

 private:
  std::unique_ptr<TensorSource> ours_;
  NameMap map_;
  std::vector<size_t> theirs_;  // by tensor
};

// Tensors of MXFP4 (GPT-OSS) under the names and with the shapes of the dequantised model: "x_blocks"
// [..., r, c] becomes "x" [..., c, r]. Other tensors are passed on.
std::unique_ptr<TensorSource> without_blocks(std::unique_ptr<TensorSource> source);

}  // namespace quintet::hf
