#pragma once

#include "hf/strided.h"

namespace quintet::hf {

// A model under our names, such as a checkpoint, as the files of its family would have it. Tensors of parts
// that are not trained come from `original`, the folder that the model started from, which may be null.
class MappedSource final : public TensorSource {
 public:
  MappedSource(std::unique_ptr<TensorSource> ours, NameMap map,
               std::shared_ptr<TensorSource> original = nullptr);
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
  std::shared_ptr<TensorSource> original_;
  std::vector<size_t> theirs_;  // by tensor; kOriginal: of `original`
  static constexpr size_t kOriginal = SIZE_MAX;
};

}  // namespace quintet::hf
