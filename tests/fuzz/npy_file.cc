// NumPy's .npy files: as tokens and as numbers.
#include "data/npy_file.h"

#include "fuzz/scratch_folder.h"
#include "fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quintet;
  static const fuzz::ScratchFolder folder;
  const std::string path = folder.write("a.npy", std::string(fuzz::text_of(data, size)));
  fuzz::run([&] { data::read_npy_numbers(path); });
  return fuzz::run([&] { data::open_npy_file(path, 1000).check_tokens(); });
}
