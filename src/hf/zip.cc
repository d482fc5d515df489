#include "hf/zip.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"

namespace quintet::hf {
namespace {

constexpr uint32_t kEnd = 0x06054b50, kEnd64 = 0x06064b50, kLocator64 = 0x07064b50, kCentral = 0x02014b50,
                   kLocal = 0x04034b50;
constexpr int64_t kMaxDirectory = int64_t{256} << 20;

template <class T>
T field(const std::vector<std::byte>& bytes, size_t at) {
  T value{};
  if (at + sizeof(T) <= bytes.size()) std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

}  // namespace

std::map<std::string, ZipEntry> read_zip(const base::InputFile& file, int64_t begin, int64_t end) {
  const std::string name = file.path().string();
  const auto fail = [&](const char* why) {
    base::fail_user(
        "{} is not a file of torch.save that Quintet reads: {}. Files written before PyTorch 1.6 must be "
        "loaded and saved again; or save as safetensors",
        name, why);
  };
  const auto read = [&](int64_t at, int64_t count) {
    if (at < 0 || count < 0 || at > end - begin || count > end - begin - at) fail("a part is outside of it");
    std::vector<std::byte> bytes(static_cast<size_t>(count));
    file.read(begin + at, bytes);
    return bytes;
  };
  const int64_t size = end - begin, tail_at = std::max<int64_t>(0, size - 65557);
  const std::vector<std::byte> tail = read(tail_at, size - tail_at);
  int64_t last = -1;
  for (int64_t i = static_cast<int64_t>(tail.size()) - 22; i >= 0 && last < 0; --i)
    if (field<uint32_t>(tail, static_cast<size_t>(i)) == kEnd) last = i;
  if (last < 0) fail("it is not a zip archive");
  const auto at_end = static_cast<size_t>(last);
  auto count = static_cast<int64_t>(field<uint16_t>(tail, at_end + 10));
  auto directory_bytes = static_cast<int64_t>(field<uint32_t>(tail, at_end + 12));
  auto directory_at = static_cast<int64_t>(field<uint32_t>(tail, at_end + 16));
  if (last >= 20 && field<uint32_t>(tail, at_end - 20) == kLocator64) {
    const std::vector<std::byte> end64 = read(static_cast<int64_t>(field<uint64_t>(tail, at_end - 12)), 56);
    if (field<uint32_t>(end64, 0) != kEnd64) fail("its end is damaged");
    count = static_cast<int64_t>(field<uint64_t>(end64, 32));
    directory_bytes = static_cast<int64_t>(field<uint64_t>(end64, 40));
    directory_at = static_cast<int64_t>(field<uint64_t>(end64, 48));
  }
  if (directory_bytes > kMaxDirectory) fail("its directory is too large");
  const std::vector<std::byte> directory = read(directory_at, directory_bytes);
  std::map<std::string, ZipEntry> entries;
  size_t at = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (at + 46 > directory.size() || field<uint32_t>(directory, at) != kCentral)
      fail("its directory is damaged");
    const uint16_t method = field<uint16_t>(directory, at + 10);
    uint64_t stored = field<uint32_t>(directory, at + 20), bytes = field<uint32_t>(directory, at + 24),
             local = field<uint32_t>(directory, at + 42);
    const size_t name_bytes = field<uint16_t>(directory, at + 28),
                 extra_bytes = field<uint16_t>(directory, at + 30),
                 comment_bytes = field<uint16_t>(directory, at + 32);
    if (at + 46 + name_bytes + extra_bytes + comment_bytes > directory.size())
      fail("its directory is damaged");
    const std::string entry(reinterpret_cast<const char*>(directory.data()) + at + 46, name_bytes);
    // The zip64 field has those of the three numbers that did not fit, in this order.
    for (size_t x = at + 46 + name_bytes, x_end = x + extra_bytes; x + 4 <= x_end;) {
      const size_t length = field<uint16_t>(directory, x + 2);
      size_t value = x + 4;
      if (field<uint16_t>(directory, x) == 1)
        for (uint64_t* const number : {&bytes, &stored, &local})
          if (*number == 0xffffffffu && value + 8 <= x + 4 + length) {
            *number = field<uint64_t>(directory, value);
            value += 8;
          }
      x += 4 + length;
    }
    at += 46 + name_bytes + extra_bytes + comment_bytes;
    if (method != 0 || stored != bytes) fail("its entries are compressed");
    if (bytes > static_cast<uint64_t>(size) || local > static_cast<uint64_t>(size))
      fail("an entry is outside of it");
    const std::vector<std::byte> header = read(static_cast<int64_t>(local), 30);
    if (field<uint32_t>(header, 0) != kLocal) fail("an entry is damaged");
    const int64_t data =
        static_cast<int64_t>(local) + 30 + field<uint16_t>(header, 26) + field<uint16_t>(header, 28);
    if (data > size || static_cast<int64_t>(bytes) > size - data) fail("an entry is outside of it");
    entries[entry] = {.begin = begin + data, .bytes = static_cast<int64_t>(bytes)};
  }
  return entries;
}

}  // namespace quintet::hf
