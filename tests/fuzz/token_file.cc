// Token files. The input is a pair of files in one: a byte of flags, four bytes with the length of the index,
// the index, the tokens. With flag 1 the checksums are corrected, which no mutation would hit by chance.
#include "data/token_file.h"

#include <cstring>

#include "base/checksum.h"
#include "fuzz/scratch_folder.h"
#include "fuzz/target.h"

namespace {

constexpr size_t kBinChecksum = 40;  // offset in the index; see docs/formats/token_file.md

void store(std::string& text, size_t at, uint64_t value) {
  if (at + sizeof value <= text.size()) std::memcpy(text.data() + at, &value, sizeof value);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quintet;
  if (size < 5) return 0;
  static const fuzz::ScratchFolder folder;
  uint32_t length = 0;
  std::memcpy(&length, data + 1, sizeof length);
  const std::string_view rest = fuzz::text_of(data + 5, size - 5);
  std::string idx(rest.substr(0, length)), bin(rest.substr(std::min<size_t>(length, rest.size())));
  if ((data[0] & 1) != 0 && idx.size() >= sizeof(uint64_t)) {
    store(idx, kBinChecksum, base::checksum_of(std::as_bytes(std::span(bin))));
    const size_t body = idx.size() - sizeof(uint64_t);
    store(idx, body, base::checksum_of(std::as_bytes(std::span(idx).first(body))));
  }
  folder.write("tokens.bin", bin);
  const std::string path = folder.write("tokens.idx", idx);
  fuzz::run([&] { data::open_token_file(path); });
  return fuzz::run([&] { data::verify_token_file(path); });
}
