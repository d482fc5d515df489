#include "checkpoint/shard.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/checksum.h"
#include "base/error.h"

namespace quintet::checkpoint {
namespace {

constexpr int64_t kLengthBytes = 8;                     // before the header
constexpr int64_t kLargestHeader = int64_t{100} << 20;  // the limit set by the format
constexpr const char* kPiecesKey = "quintet.pieces";
constexpr const char* kStepKey = "quintet.step";
constexpr const char* kChunkKey = "quintet.chunk_bytes";

using Sums = std::vector<std::vector<uint64_t>>;  // by piece

size_t num_chunks(const ShardPiece& p, int64_t chunk) {
  return static_cast<size_t>((p.bytes() + chunk - 1) / chunk);
}

// The length and the header. Checksums have a fixed width, so its size does not depend on them.
std::string header_text(const std::vector<ShardPiece>& pieces, const Sums& sums,
                        const ShardOptions& options) {
  Json header = Json::object(), described = Json::array();
  std::map<std::string, int> times;  // a tensor may have several pieces here
  int64_t at = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const ShardPiece& p = pieces[i];
    const int n = times[p.tensor.name]++;
    const std::string key = n == 0 ? p.tensor.name : fmt::format("{}#{}", p.tensor.name, n);
    Json list = Json::array();
    for (const uint64_t sum : sums[i]) list.push_back(sum_text(sum));
    described.push_back({{"key", key},
                         {"name", p.tensor.name},
                         {"shape", p.tensor.shape},
                         {"region", region_json(p.region, p.tensor.shape)},
                         {"sums", std::move(list)}});
    header[key] = {{"dtype", safetensors_name(p.tensor.dtype)},
                   {"shape", p.region.is_whole_box() ? p.region.size : std::vector<int64_t>{p.region.count}},
                   {"data_offsets", {at, at + p.bytes()}}};
    at += p.bytes();
  }
  header["__metadata__"] = {{"format", "pt"},
                            {kStepKey, std::to_string(options.step)},
                            {kChunkKey, std::to_string(options.chunk_bytes)},
                            {kPiecesKey, described.dump()}};
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // aligns the data
  const uint64_t length = text.size();
  std::string whole(reinterpret_cast<const char*>(&length), kLengthBytes);
  return whole + text;
}

Sums empty_sums(const std::vector<ShardPiece>& pieces, int64_t chunk) {
  Sums sums;
  for (const ShardPiece& p : pieces) sums.emplace_back(num_chunks(p, chunk), 0);
  return sums;
}

}  // namespace

std::string shard_name(int64_t rank) { return fmt::format("rank-{:05}.safetensors", rank); }

std::string frozen_name(int64_t rank) { return fmt::format("frozen-{:05}.safetensors", rank); }

int64_t shard_bytes(const std::vector<ShardPiece>& pieces, const ShardOptions& options) {
  auto bytes =
      static_cast<int64_t>(header_text(pieces, empty_sums(pieces, options.chunk_bytes), options).size());
  for (const ShardPiece& p : pieces) bytes += p.bytes();
  return bytes;
}

void write_shard(const base::Path& path, const std::vector<ShardPiece>& pieces, const PieceSource& source,
                 const ShardOptions& options) {
  Sums sums = empty_sums(pieces, options.chunk_bytes);
  const auto header_bytes = static_cast<int64_t>(header_text(pieces, sums, options).size());
  QUINTET_CHECK(header_bytes <= kLargestHeader, "a shard of {} pieces has a header of {} bytes",
                pieces.size(), header_bytes);
  base::OutputFile file(*options.files, path);
  const auto put = [&](int64_t position, std::span<const std::byte> bytes) {
    file.write(position, bytes);
    if (options.written) options.written(static_cast<int64_t>(bytes.size()));
  };
  std::vector<std::byte> buffer;
  int64_t position = header_bytes;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const int64_t size = base::size_of(pieces[i].tensor.dtype), bytes = pieces[i].bytes();
    QUINTET_CHECK(options.chunk_bytes % size == 0, "chunks of {} bytes of elements of {}",
                  options.chunk_bytes, size);
    for (size_t c = 0; c < sums[i].size(); ++c) {
      const int64_t begin = static_cast<int64_t>(c) * options.chunk_bytes,
                    end = std::min(begin + options.chunk_bytes, bytes);
      buffer.resize(static_cast<size_t>(end - begin));
      source(i, begin / size, buffer);
      sums[i][c] = base::checksum_of(buffer);
      put(position + begin, buffer);
    }
    position += bytes;
  }
  const std::string header = header_text(pieces, sums, options);
  put(0, std::as_bytes(std::span(header)));
  file.finish();
}

void add_shard(Manifest& m, const base::Path& path, std::optional<int64_t> step) {
  const auto refuse = [&](const std::string& why) {
    base::fail_user("'{}' is not a shard of step {}: {}", path.string(), m.step, why);
  };
  const base::InputFile file(path);
  uint64_t length = 0;
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length > static_cast<uint64_t>(kLargestHeader)) refuse("its header is too large");
  std::string text(static_cast<size_t>(length) + kLengthBytes, '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  const Json header = Json::parse(text.begin() + kLengthBytes, text.end(), nullptr, false);
  const int number = static_cast<int>(m.files.size());
  m.files.push_back({.name = path.filename().string(),
                     .bytes = file.size(),
                     .header_bytes = static_cast<int64_t>(text.size()),
                     .header_sum = base::checksum_of(std::as_bytes(std::span(text)))});
  try {
    const Json& metadata = header.at("__metadata__");
    if ((step && metadata.at(kStepKey) != std::to_string(*step)) ||
        metadata.at(kChunkKey) != std::to_string(m.chunk_bytes))
      refuse("its metadata says " + metadata.at(kStepKey).dump());
    int64_t data_end = 0;
    for (const Json& p : Json::parse(metadata.at(kPiecesKey).get<std::string>())) {
      const Json& entry = header.at(p.at("key").get<std::string>());
      TensorInfo info{.name = p.at("name").get<std::string>(),
                      .shape = p.at("shape").get<std::vector<int64_t>>()};
      const auto dtype = parse_safetensors_dtype(entry.at("dtype").get<std::string>());
      if (!dtype) refuse("unknown dtype " + entry.at("dtype").dump());
      info.dtype = *dtype;
      Piece piece{
          .file = number,
          .position = static_cast<int64_t>(text.size()) + entry.at("data_offsets").at(0).get<int64_t>(),
          .region = region_of(p.at("region"), info.shape)};
      for (const Json& sum : p.at("sums")) piece.sums.push_back(parse_sum(sum.get<std::string>()).value());
      data_end = std::max(data_end, entry.at("data_offsets").at(1).get<int64_t>());
      m.tensors.push_back({.info = std::move(info), .pieces = {std::move(piece)}});
    }
    if (data_end + static_cast<int64_t>(text.size()) != file.size())
      refuse(fmt::format("it has {} bytes, expected {}", file.size(),
                         data_end + static_cast<int64_t>(text.size())));
  } catch (const nlohmann::json::exception& e) {
    refuse(e.what());
  } catch (const std::bad_optional_access&) {
    refuse("a checksum is not 16 hexadecimal digits");
  }
}

void sort_tensors(Manifest& m) {
  std::stable_sort(m.tensors.begin(), m.tensors.end(),
                   [](const SavedTensor& a, const SavedTensor& b) { return a.info.name < b.info.name; });
  std::vector<SavedTensor> merged;
  for (SavedTensor& t : m.tensors) {
    if (merged.empty() || merged.back().info.name != t.info.name) {
      merged.push_back(std::move(t));
      continue;
    }
    QUINTET_CHECK(merged.back().info.shape == t.info.shape && merged.back().info.dtype == t.info.dtype,
                  "ranks saved {} with different shapes or types", t.info.name);
    std::move(t.pieces.begin(), t.pieces.end(), std::back_inserter(merged.back().pieces));
  }
  m.tensors = std::move(merged);
}

}  // namespace quintet::checkpoint
