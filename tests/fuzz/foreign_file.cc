// Token files of other systems: Megatron's pair with its mask, and a .bin alone. The input is three files in
// one: four bytes with the length of the index, four with the length of the mask (0: none), then index, mask
// and tokens. An empty index: nanoGPT's.
#include "data/foreign_file.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "fuzz/scratch_folder.h"
#include "fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quintet;
  if (size < 8) return 0;
  static const fuzz::ScratchFolder folder;
  uint32_t lengths[2];
  std::memcpy(lengths, data, sizeof lengths);
  std::string_view rest = fuzz::text_of(data + 8, size - 8);
  const auto take = [&](size_t count) {
    const std::string_view part = rest.substr(0, count);
    rest.remove_prefix(part.size());
    return part;
  };
  const std::string idx = folder.write("tokens.idx", take(lengths[0]));
  const std::string mask = folder.write("tokens.mask", take(lengths[1]));
  if (lengths[0] == 0) std::filesystem::remove(idx);
  if (lengths[1] == 0) std::filesystem::remove(mask);
  const std::string path = folder.write("tokens.bin", rest);
  return fuzz::run([&] {
    const auto corpus = data::open_foreign_file(path, 1000);
    if (!corpus) return;
    fuzz::require(
        corpus->trained().empty() || static_cast<int64_t>(corpus->trained().size()) == corpus->tokens(),
        "a flag per token");
    corpus->check_tokens();
  });
}
