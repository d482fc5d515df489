#include "hf/folder_writer.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/convert.h"
#include "base/error.h"
#include "base/json.h"
#include "base/text.h"

namespace quintet::hf {

using base::DType;

namespace {

struct Shard {
  std::vector<TensorInfo> tensors;  // as written
  int64_t bytes = 0;
};

std::vector<Shard> shards_of(const TensorSource& source, const FolderOptions& options) {
  std::vector<Shard> shards(1);
  for (TensorInfo t : source.tensors()) {
    if (base::is_floating(t.dtype)) t.dtype = options.dtype(t);
    if (!shards.back().tensors.empty() && shards.back().bytes + t.bytes() > options.shard_bytes)
      shards.emplace_back();
    shards.back().bytes += t.bytes();
    shards.back().tensors.push_back(std::move(t));
  }
  return shards;
}

bool is_infinite(const std::byte* data, DType type, int64_t i) {
  double value = 0;
  base::convert_elements(data + i * base::size_of(type), type, reinterpret_cast<std::byte*>(&value),
                         DType::F64, 1);
  return std::isinf(value);
}

// UserError for a number that the narrower type has as infinity.
void require_range(const TensorInfo& to, DType from_type, const std::byte* from, const std::byte* converted,
                   int64_t first, int64_t count) {
  const uint16_t infinity = to.dtype == DType::F16 ? 0x7c00 : 0x7f80;
  for (int64_t i = 0; i < count; ++i) {
    if (base::size_of(to.dtype) == 2 &&
        (reinterpret_cast<const uint16_t*>(converted)[i] & 0x7fff) != infinity)
      continue;
    if (!is_infinite(converted, to.dtype, i) || is_infinite(from, from_type, i)) continue;
    double value = 0;
    base::convert_elements(from + i * base::size_of(from_type), from_type,
                           reinterpret_cast<std::byte*>(&value), DType::F64, 1);
    base::fail_user("{}: element {} is {:g}, which {} does not reach; choose --dtype bf16 or f32", to.name,
                    first + i, value, to_string(to.dtype));
  }
}

void write_shard_file(const base::Path& path, const Shard& shard, TensorSource& source,
                      const FolderOptions& options) {
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"format", "pt"}};
  int64_t at = 0;
  for (const TensorInfo& t : shard.tensors) {
    header[t.name] = {{"dtype", checkpoint::safetensors_name(t.dtype)},
                      {"shape", t.shape},
                      {"data_offsets", {at, at + t.bytes()}}};
    at += t.bytes();
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  base::AtomicFile file(path);
  const uint64_t length = text.size();
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(std::as_bytes(std::span(text)));
  std::vector<std::byte> converted;
  for (const TensorInfo& t : shard.tensors) {
    const TensorInfo& from = *source.find(t.name);
    int64_t written = 0;
    source.stream(from, [&](std::span<const std::byte> elements) {
      const int64_t count = static_cast<int64_t>(elements.size()) / base::size_of(from.dtype);
      if (from.dtype != t.dtype) {
        converted.resize(static_cast<size_t>(count * base::size_of(t.dtype)));
        base::convert_elements(elements.data(), from.dtype, converted.data(), t.dtype, count);
        require_range(t, from.dtype, elements.data(), converted.data(), written, count);
        elements = converted;
      }
      file.write(elements);
      written += count;
      if (options.written) options.written(static_cast<int64_t>(elements.size()));
    });
    QUINTET_CHECK(written == t.count(), "{} elements of {}, which has {}", written, t.name, t.count());
  }
  file.commit();
}

void remove_folder(const base::Path& folder) {
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
}

}  // namespace

void require_new(const base::Path& folder) {
  if (base::file_exists(folder))
    base::fail_user("'{}' exists and is a file; name a new folder", folder.string());
  if (base::directory_exists(folder) && !base::list_folder(folder).empty())
    base::fail_user("'{}' exists and is not empty; name a new folder, or remove it first", folder.string());
}

WrittenFolder write_folder(const base::Path& folder, TensorSource& source, const FolderOptions& options) {
  WrittenFolder result{.files = 0, .tensors = static_cast<int64_t>(source.tensors().size()), .bytes = 0};
  if (folder.string().ends_with(".safetensors")) {
    FolderOptions one = options;
    one.shard_bytes = std::numeric_limits<int64_t>::max();
    const std::vector<Shard> shards = shards_of(source, one);
    write_shard_file(folder, shards[0], source, options);
    return {.files = 1, .tensors = result.tensors, .bytes = shards[0].bytes};
  }
  require_new(folder);
  const std::vector<Shard> shards = shards_of(source, options);
  for (const Shard& s : shards) result.bytes += s.bytes;
  if (const int64_t room = base::free_bytes(folder); room < result.bytes)
    base::fail_user("'{}' needs {}, but {} are free on its disk", folder.string(),
                    base::human_bytes(result.bytes), base::human_bytes(room));
  // Beside the folder, also if its name ends with a slash, and under a name that nobody else uses: what a
  // kill has left there is removed.
  const base::Path named = folder.has_filename() ? folder : folder.parent_path();
  const base::Path temporary = named.string() + ".quintet-partial";
  remove_folder(temporary);
  base::make_directories(temporary);
  try {
    nlohmann::ordered_json map = nlohmann::ordered_json::object();
    for (size_t i = 0; i < shards.size(); ++i) {
      const std::string name = shards.size() == 1
                                   ? "model.safetensors"
                                   : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
      write_shard_file(temporary / name, shards[i], source, options);
      for (const TensorInfo& t : shards[i].tensors) map[t.name] = name;
      ++result.files;
    }
    if (shards.size() > 1)
      base::write_file_atomically(
          temporary / "model.safetensors.index.json",
          base::json_text({{"metadata", {{"total_size", result.bytes}}}, {"weight_map", map}}, 3) + "\n");
    for (const base::Path& file : options.copies)
      base::write_file_atomically(temporary / file.filename(), base::read_file(file));
    for (const auto& [name, text] : options.texts) base::write_file_atomically(temporary / name, text);
    base::FileSystem& files = base::FileSystem::real();
    files.sync_directory(temporary);
    files.remove_directory(named);  // an empty one
    files.rename(temporary, named);
  } catch (...) {
    remove_folder(temporary);
    throw;
  }
  return result;
}

}  // namespace quintet::hf
