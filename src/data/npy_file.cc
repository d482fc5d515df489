#include "data/npy_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "data/block_checksums.h"

namespace quintet::data {
namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";

// The text after `'key':` in the header's dictionary.
std::string_view value_after(std::string_view header, std::string_view key, const std::string& name) {
  const size_t at = header.find(key);
  const size_t colon = at == std::string_view::npos ? at : header.find(':', at);
  if (colon == std::string_view::npos)
    base::fail_user("'{}' is not a valid .npy file: its header has no {}", name, key);
  std::string_view rest = header.substr(colon + 1);
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  return rest;
}

struct NpyMapped {
  base::MappedFile file;
  std::vector<uint64_t> offsets;
};

struct NpyWidened {
  std::vector<uint32_t> ids;
  std::vector<uint64_t> offsets;
};

}  // namespace

NpyHeader parse_npy(std::span<const std::byte> file, const std::string& name) {
  const auto byte = [&](size_t i) { return std::to_integer<size_t>(file[i]); };
  if (file.size() < 12 || std::memcmp(file.data(), kNpyMagic.data(), kNpyMagic.size()) != 0)
    base::fail_user("'{}' is not a .npy file: it does not begin with \"\\x93NUMPY\"", name);
  const size_t version = byte(6);
  if (version < 1 || version > 3)
    base::fail_user("'{}' has version {} of the .npy format; versions 1 to 3 are supported", name, version);
  const size_t begin = version == 1 ? 10 : 12;
  const size_t length =
      version == 1 ? byte(8) | byte(9) << 8 : byte(8) | byte(9) << 8 | byte(10) << 16 | byte(11) << 24;
  if (length > file.size() - begin)
    base::fail_user("'{}' is truncated: {} bytes, but its header alone ends at {}", name, file.size(),
                    begin + length);
  const std::string_view header(reinterpret_cast<const char*>(file.data()) + begin, length);

  NpyHeader out;
  out.data_at = begin + length;
  const std::string_view type = value_after(header, "'descr'", name);
  const bool fits = type.size() >= 5 && (type[0] == '\'' || type[0] == '"') && type[4] == type[0];
  const char order = fits ? type[1] : 0;
  out.kind = fits ? type[2] : 0;
  out.width = fits ? type[3] - '0' : 0;
  const bool one_byte = out.width == 1;
  if (!fits || (order != '<' && !(order == '|' && one_byte)) ||
      !(out.kind == 'u' || out.kind == 'i' || out.kind == 'f') ||
      !(one_byte || out.width == 2 || out.width == 4 || out.width == 8))
    base::fail_user(
        "'{}' has elements of type {}; little-endian integers and floating-point numbers are supported", name,
        type.substr(0, std::min<size_t>(type.find(','), 24)));
  const std::string_view shape = value_after(header, "'shape'", name);
  const char* const last = shape.data() + shape.size();
  if (shape.empty() || shape[0] != '(')
    base::fail_user("'{}' is not a valid .npy file: its shape is damaged", name);
  const auto [end, error] = std::from_chars(shape.data() + 1, last, out.count);
  // "(5,)": one number, a comma, and the end.
  const std::string_view after(end, static_cast<size_t>(last - end));
  if (error != std::errc{} || out.count < 0 || !after.starts_with(",)"))
    base::fail_user("'{}' has the shape {}; one dimension is supported: save array.reshape(-1)", name,
                    shape.substr(0, std::min<size_t>(shape.find(')'), 24) + 1));
  const size_t bytes = file.size() - out.data_at;
  if (static_cast<uint64_t>(out.count) > bytes / static_cast<size_t>(out.width) ||
      bytes != static_cast<size_t>(out.count * out.width))
    base::fail_user("'{}' {}: {} bytes follow its header, which declares {} elements of {} bytes", name,
                    bytes / static_cast<size_t>(out.width) < static_cast<uint64_t>(out.count) ? "is truncated"
                                                                                              : "is too long",
                    bytes, base::thousands(out.count), out.width);
  return out;
}

bool is_npy_file(const base::Path& path) { return path.extension() == ".npy"; }

Corpus open_npy_file(const base::Path& path, int64_t vocab) {
  const std::string name = path.string();
  base::MappedFile file(path);
  const NpyHeader header = parse_npy(file.bytes(), name);
  const bool is_signed = header.kind == 'i';
  if (header.kind == 'f' || (is_signed && header.width < 4) || (!is_signed && header.width == 8))
    base::fail_user(
        "'{}' has elements of type {}{}; token ids are uint8, uint16, uint32, int32 or int64: save "
        "array.astype(\"uint32\")",
        name, header.kind, header.width);
  if (header.count == 0) base::fail_user("'{}' contains no tokens", name);
  const auto tokens = static_cast<uint64_t>(header.count);
  const auto data = file.bytes().subspan(header.data_at);
  if (header.width < 8) {
    auto mapped = std::make_shared<NpyMapped>(NpyMapped{std::move(file), {0, tokens}});
    const auto bytes = mapped->file.bytes().subspan(header.data_at);
    Corpus corpus(name, bytes, static_cast<TokenWidth>(header.width), vocab, mapped->offsets, mapped);
    corpus.set_checksums(checksums_of_manifest(path, name, bytes, vocab));
    return corpus;
  }
  auto wide = std::make_shared<NpyWidened>(NpyWidened{{}, {0, tokens}});
  wide->ids.reserve(tokens);
  for (size_t i = 0; i < tokens; ++i) {
    int64_t id;
    std::memcpy(&id, data.data() + 8 * i, sizeof id);
    if (id < 0 || id >= vocab)
      base::fail_user("'{}': token {} at position {} is outside the vocabulary of {} (ids 0 to {})", name, id,
                      i, vocab, vocab - 1);
    wide->ids.push_back(static_cast<uint32_t>(id));
  }
  Corpus corpus(name, std::as_bytes(std::span(wide->ids)), TokenWidth::U32, vocab, wide->offsets, wide);
  corpus.set_ids_are_known();
  return corpus;
}

std::string npy_header(int64_t count) {
  std::string fields = fmt::format("{{'descr': '<f8', 'fortran_order': False, 'shape': ({},), }}", count);
  fields.append(63 - (kNpyMagic.size() + 4 + fields.size()) % 64, ' ') += '\n';  // 64 bytes align the data
  return std::string(kNpyMagic) + std::string{1, 0, static_cast<char>(fields.size()), 0} + fields;
}

std::vector<double> read_npy_numbers(const base::Path& path) {
  const base::MappedFile file(path);
  const NpyHeader header = parse_npy(file.bytes(), path.string());
  if (header.kind == 'f' && header.width < 4)
    base::fail_user("'{}' has 16-bit floating-point numbers; 32 and 64 bits are supported", path.string());
  const std::byte* const data = file.bytes().data() + header.data_at;
  std::vector<double> numbers(static_cast<size_t>(header.count));
  const auto take = [&]<class T>(T) {
    for (size_t i = 0; i < numbers.size(); ++i) {
      T value;
      std::memcpy(&value, data + i * sizeof(T), sizeof(T));
      numbers[i] = static_cast<double>(value);
    }
  };
  const auto of_width = [&](auto one, auto two, auto four, auto eight) {
    header.width == 1   ? take(one)
    : header.width == 2 ? take(two)
    : header.width == 4 ? take(four)
                        : take(eight);
  };
  if (header.kind == 'f')
    header.width == 4 ? take(float{}) : take(double{});
  else if (header.kind == 'u')
    of_width(uint8_t{}, uint16_t{}, uint32_t{}, uint64_t{});
  else
    of_width(int8_t{}, int16_t{}, int32_t{}, int64_t{});
  return numbers;
}

}  // namespace quintet::data
