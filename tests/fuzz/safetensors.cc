// Safetensors files: every tensor of an accepted file can be read to its last byte.
#include "checkpoint/safetensors.h"

#include "fuzz/scratch_folder.h"
#include "fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quintet;
  static const fuzz::ScratchFolder folder;
  const std::string path = folder.write("model.safetensors", fuzz::text_of(data, size));
  return fuzz::run([&] {
    const checkpoint::SafetensorsFile file(path);
    unsigned sum = 0;
    for (const checkpoint::TensorInfo& tensor : file.tensors()) {
      const std::span<const std::byte> bytes = file.bytes(tensor);
      fuzz::require(static_cast<int64_t>(bytes.size()) == tensor.bytes(), "a tensor of another size");
      for (const std::byte b : bytes) sum += static_cast<unsigned>(b);
      fuzz::require(file.find(tensor.name) != nullptr, "a tensor that is not found");
    }
    fuzz::require(sum < 1u << 31, "unreachable: it keeps the reads");
  });
}
