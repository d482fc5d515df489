// model.safetensors.index.json: no file outside the folder is ever named.
#include "fuzz/target.h"
#include "hf/safetensors_source.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quintet;
  return fuzz::run([&] {
    for (const auto& [tensor, file] : hf::parse_weight_index(fuzz::text_of(data, size), "input")) {
      fuzz::require(file.find('/') == std::string::npos, "a file in another folder");
      fuzz::require(!file.empty() && file[0] != '.', "a hidden file");
    }
  });
}
