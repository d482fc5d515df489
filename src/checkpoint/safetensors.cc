#include "checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file_system.h"
#include "base/json.h"

namespace quintet::checkpoint {
namespace {

using base::DType;

constexpr std::pair<DType, const char*> kNames[] = {
    {DType::F64, "F64"}, {DType::F32, "F32"}, {DType::BF16, "BF16"}, {DType::F16, "F16"},
    {DType::I64, "I64"}, {DType::I32, "I32"}, {DType::I16, "I16"},   {DType::U8, "U8"}};
constexpr int64_t kMaxHeader = int64_t{100} << 20;  // the limit set by the format

}  // namespace

const char* safetensors_name(DType t) {
  for (const auto& [type, name] : kNames)
    if (type == t) return name;
  base::fail_internal("safetensors has no name for dtype {}", base::to_string(t));
}

std::optional<DType> parse_safetensors_dtype(std::string_view text) {
  for (const auto& [type, name] : kNames)
    if (text == name) return type;
  return std::nullopt;
}

int64_t TensorInfo::count() const {
  int64_t n = 1;
  for (const int64_t d : shape) n *= d;
  return n;
}

void write_safetensors(const std::string& path, const std::vector<TensorInfo>& tensors,
                       const std::map<std::string, std::string>& metadata,
                       const std::function<void(size_t, std::span<std::byte>)>& fill) {
  nlohmann::ordered_json header;
  if (!metadata.empty()) header["__metadata__"] = metadata;
  int64_t at = 0;
  for (const TensorInfo& t : tensors) {
    header[t.name] = {
        {"dtype", safetensors_name(t.dtype)}, {"shape", t.shape}, {"data_offsets", {at, at + t.bytes()}}};
    at += t.bytes();
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // aligns the data

  base::AtomicFile file(path);
  const uint64_t length = text.size();
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(std::as_bytes(std::span(text)));
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < tensors.size(); ++i) {
    bytes.assign(static_cast<size_t>(tensors[i].bytes()), std::byte{0});
    fill(i, bytes);
    file.write(bytes);
  }
  file.commit();
}

namespace {

// 0: unknown.
int64_t element_bytes_of(std::string_view dtype) {
  constexpr std::pair<std::string_view, int64_t> kSizes[] = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"F8_E8M0", 1},
      {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},     {"U32", 4},
      {"F32", 4},  {"F64", 8}, {"I64", 8}, {"U64", 8},     {"C64", 8}};
  for (const auto& [name, bytes] : kSizes)
    if (name == dtype) return bytes;
  return 0;
}

uint64_t header_length(std::span<const std::byte> first, int64_t file_bytes, const std::string& path) {
  uint64_t length = 0;
  if (first.size() < 8)
    base::fail_user("{} is not a safetensors file: {} bytes, expected at least 8", path, file_bytes);
  std::memcpy(&length, first.data(), 8);
  if (std::memcmp(first.data(), "version ", 8) == 0)
    base::fail_user(
        "{} is not a safetensors file but a pointer to one in Git LFS: run 'git lfs pull' in its folder, or "
        "download it with 'hf download'",
        path);
  if (length > static_cast<uint64_t>(kMaxHeader) || static_cast<int64_t>(length) > file_bytes - 8)
    base::fail_user(
        "{} is not a safetensors file or is truncated: the header takes {} bytes, the file has {}", path,
        length, file_bytes);
  return length;
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view text, int64_t data_begin, int64_t file_bytes,
                                           const std::string& path) {
  const int64_t data_bytes = file_bytes - data_begin;
  const auto json = base::parse_json(text);
  if (!json.is_object()) base::fail_user("{}: the header is not a JSON object", path);
  SafetensorsHeader header;
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (const auto& [name, entry] : json.items()) {
    if (name == "__metadata__") {
      for (const auto& [key, value] : entry.items())
        if (value.is_string()) header.metadata[key] = value.get<std::string>();
      continue;
    }
    SafetensorsEntry info{.name = name, .dtype = {}, .shape = {}};
    std::vector<int64_t> range;
    try {
      info.dtype = entry.at("dtype").get<std::string>();
      if (element_bytes_of(info.dtype) == 0)
        base::fail_user("{}: tensor {} has unsupported dtype {}", path, name, entry.at("dtype").dump());
      for (const char* list : {"shape", "data_offsets"})  // get() would round fractions
        for (const auto& number : entry.at(list))
          if (!number.is_number_integer())
            base::fail_user("{}: tensor {}: {} must be integers, got {}", path, name, list, number.dump());
      info.shape = entry.at("shape").get<std::vector<int64_t>>();
      range = entry.at("data_offsets").get<std::vector<int64_t>>();
    } catch (const nlohmann::json::exception&) {
      base::fail_user("{}: tensor {} must have dtype, shape and data_offsets", path, name);
    }
    bool fits = range.size() == 2 && range[0] >= 0 && range[0] <= range[1] && range[1] <= data_bytes;
    int64_t count = 1;  // elements, then bytes
    for (const int64_t d : info.shape) fits = fits && d >= 0 && !__builtin_mul_overflow(count, d, &count);
    fits = fits && !__builtin_mul_overflow(count, element_bytes_of(info.dtype), &count);
    if (!fits || range[1] - range[0] != count)
      base::fail_user(
          "{}: tensor {} does not match the file: data_offsets {} of {} data bytes; is the file truncated?",
          path, name, entry.at("data_offsets").dump(), data_bytes);
    ranges.emplace_back(range[0], range[1]);
    info.begin = data_begin + range[0], info.end = data_begin + range[1];
    header.tensors.push_back(std::move(info));
  }
  // The format demands that tensors cover the data without gaps and overlaps.
  std::sort(ranges.begin(), ranges.end());
  int64_t covered = 0;
  for (const auto& [begin, end] : ranges) {
    if (begin != covered)
      base::fail_user("{}: tensors {} in the data: one begins at byte {}, the one before it ends at {}", path,
                      begin < covered ? "overlap" : "leave a gap", begin, covered);
    covered = end;
  }
  if (covered != data_bytes)
    base::fail_user("{}: {} bytes after the last tensor; the file is damaged or has been appended to", path,
                    data_bytes - covered);
  return header;
}

SafetensorsHeader read_safetensors_header(const std::string& path) {
  const base::InputFile file{base::Path(path)};
  std::byte first[8];
  const std::span<std::byte> read(first, static_cast<size_t>(std::min<int64_t>(8, file.size())));
  file.read(0, read);
  std::string text(header_length(read, file.size(), path), '\0');
  file.read(8, std::as_writable_bytes(std::span(text)));
  return parse_safetensors_header(text, 8 + static_cast<int64_t>(text.size()), file.size(), path);
}

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path), file_(path) {
  const std::span<const std::byte> all = file_.bytes();
  const auto size = static_cast<int64_t>(all.size());
  const uint64_t length = header_length(all.first(std::min<size_t>(8, all.size())), size, path);
  SafetensorsHeader header = parse_safetensors_header({reinterpret_cast<const char*>(all.data()) + 8, length},
                                                      8 + static_cast<int64_t>(length), size, path);
  metadata_ = std::move(header.metadata);
  for (SafetensorsEntry& entry : header.tensors) {
    const auto dtype = parse_safetensors_dtype(entry.dtype);
    if (!dtype) base::fail_user("{}: tensor {} has unsupported dtype \"{}\"", path, entry.name, entry.dtype);
    ranges_.emplace_back(entry.begin, entry.end);
    tensors_.push_back({.name = std::move(entry.name), .dtype = *dtype, .shape = std::move(entry.shape)});
  }
}

const TensorInfo* SafetensorsFile::find(const std::string& name) const {
  for (const TensorInfo& t : tensors_)
    if (t.name == name) return &t;
  return nullptr;
}

std::span<const std::byte> SafetensorsFile::bytes(const TensorInfo& tensor) const {
  const size_t index = static_cast<size_t>(&tensor - tensors_.data());
  QUINTET_CHECK(index < tensors_.size(), "the tensor belongs to another file");
  const auto [begin, end] = ranges_[index];
  return file_.bytes().subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
}

}  // namespace quintet::checkpoint
