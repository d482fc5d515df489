// Files of torch.save: every tensor of an accepted one can be read to its last element.
#include "fuzz/scratch_folder.h"
#include "fuzz/target.h"
#include "hf/torch_source.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quintet;
  static const fuzz::ScratchFolder folder;
  const std::string path = folder.write("model.bin", fuzz::text_of(data, size));
  return fuzz::run([&] {
    const auto source = hf::open_torch(path, {path});
    std::vector<std::byte> bytes;
    for (const checkpoint::TensorInfo& t : source->tensors()) {
      fuzz::require(t.bytes() <= static_cast<int64_t>(size), "a tensor that is larger than its file");
      bytes.resize(static_cast<size_t>(t.bytes()));
      source->read(t, 0, bytes);
    }
  });
}
