#pragma once

#include "checkpoint/reader.h"
#include "hf/tensor_source.h"

namespace quintet::hf {

// The model of one of our checkpoints: parameters and router biases, without states of the optimizer unless
// `all`. What is read is verified.
class CheckpointSource final : public TensorSource {
 public:
  explicit CheckpointSource(const base::Path& folder, bool all = false);
  void read(const TensorInfo& tensor, int64_t first, std::span<std::byte> out) override;
  void read(const TensorInfo& tensor, const Region& region, std::span<std::byte> out) override;
  int64_t bytes_read() const override { return bytes_; }
  std::string kind() const override { return "checkpoint"; }
  const checkpoint::Manifest& manifest() const { return reader_.manifest(); }

 private:
  checkpoint::Reader reader_;
  int64_t bytes_ = 0;
};

}  // namespace quintet::hf
