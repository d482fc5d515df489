// Folders of tokens and the JSON that describes them. The first byte chooses: the rest is the manifest of
// `quintet prepare` beside sound tokens; or four bytes of length, the state.json of a datasets folder, and
// its Arrow file.
#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "data/foreign_file.h"
#include "data/open_corpus.h"
#include "fuzz/scratch_folder.h"
#include "fuzz/target.h"

namespace {

// A document of the tokens 0 to 99.
std::string prepared_folder(const quintet::fuzz::ScratchFolder& folder) {
  const std::filesystem::path path =
      std::filesystem::path(folder.write("probe", "")).parent_path() / "prepared";
  std::filesystem::create_directories(path);
  quintet::data::MegatronWriter writer(path / "tokens", 256);
  std::array<int32_t, 100> ids;
  std::iota(ids.begin(), ids.end(), 0);
  writer.add_document(ids);
  writer.finish();
  return path.string();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quintet;
  if (size < 1) return 0;
  static const fuzz::ScratchFolder folder;
  static const std::string prepared = prepared_folder(folder);
  static const auto bytes = tokenizer::load_tokenizer("bytes");
  const std::string_view json = fuzz::text_of(data + 1, size - 1);
  if (data[0] % 2 == 0) {
    folder.write("prepared/manifest.json", json);
    return fuzz::run([&] {
      const data::Corpus corpus = data::open_corpus({prepared}, *bytes, 1 << 20).corpus;
      fuzz::require(corpus.tokens() == 100, "another number of tokens");
      corpus.check_tokens();
    });
  }
  if (size < 5) return 0;
  uint32_t length = 0;
  std::memcpy(&length, data + 1, sizeof length);
  const std::string_view rest = json.substr(4);
  static const std::string rows = std::filesystem::path(prepared).parent_path() / "rows";
  std::filesystem::create_directories(rows);
  folder.write("rows/state.json", rest.substr(0, length));
  folder.write("rows/data.arrow", rest.substr(std::min<size_t>(length, rest.size())));
  return fuzz::run([&] { data::open_corpus({rows}, *bytes, 1 << 20); });
}
