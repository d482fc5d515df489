#pragma once

#include <functional>
#include <optional>

#include "hf/tensor_source.h"

namespace quintet::hf {

// Reads a model.safetensors.index.json: the file names of its tensors, and the tensors of each. UserError
// for anything else, and for a file name that leaves the folder.
std::map<std::string, std::string> parse_weight_index(std::string_view text, const std::string& source);

// One or several safetensors files. `listed` is what the index says of each tensor: it must be in that file.
class SafetensorsSource final : public TensorSource {
 public:
  SafetensorsSource(base::Path path, std::vector<base::Path> files,
                    const std::map<std::string, std::string>& listed);
  using TensorSource::read;
  void read(const TensorInfo& tensor, int64_t first, std::span<std::byte> out) override;
  int64_t bytes_read() const override { return files_.bytes_read(); }
  bool is_transposed(const TensorInfo& tensor) const override {
    return stored_[index_of(tensor)].code == Code::Mxfp4;
  }
  void read_stored(const TensorInfo& tensor, int64_t first, std::span<std::byte> out) override;
  std::string file_of(const TensorInfo& tensor) const override;
  std::string kind() const override { return quantised_ ? "quantised safetensors" : "safetensors"; }

 private:
  enum class Code : uint8_t { Plain, Fp8, Mxfp4 };
  struct Stored {
    size_t file = 0;
    int64_t begin = 0, end = 0;
    Code code = Code::Plain;
    // Of a quantised tensor: where its scales are, and the block that each scales.
    size_t scale_file = 0;
    int64_t scale_begin = 0, scale_end = 0;
    int64_t columns = 0, block_rows = 0, block_columns = 0, scale_columns = 0;
    bool scale_bf16 = false;
  };
  void read_fp8(const Stored& s, int64_t first, std::span<std::byte> out);
  void read_mxfp4(const Stored& s, int64_t first, std::span<std::byte> out);
  void read_transposed(const TensorInfo& tensor, int64_t first, std::span<std::byte> out);
  std::span<const std::byte> scales(const Stored& s);

  OpenFiles files_;
  std::vector<Stored> stored_;  // by tensor
  std::vector<std::byte> scales_;
  const Stored* scales_of_ = nullptr;
  bool quantised_ = false;
};

// An OCP fp8 number with 4 bits of exponent and 3 of mantissa, without infinities (float8_e4m3fn).
float fp8_e4m3(uint8_t bits);

}  // namespace quintet::hf
