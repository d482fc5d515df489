#include "checkpoint/shard.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/checksum.h"
#include "base/error.h"
#include "checkpoint/background.h"

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
  // Aligns the data, so that large writes can bypass the system's memory.
  const int64_t bytes = kLengthBytes + std::ssize(text);
  text.append(static_cast<size_t>(-bytes & (base::kDirectBytes - 1)), ' ');
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

namespace {

// Fills the data section in the order of the file, and keeps the checksums of the pieces' chunks.
class DataStream {
 public:
  DataStream(const std::vector<ShardPiece>& pieces, const PieceSource& source, int64_t chunk, Sums& sums)
      : pieces_(pieces), source_(source), chunk_(chunk), sums_(sums) {}

  // The next bytes. No element is cut: blocks and pieces begin at multiples of their elements' size.
  void fill(std::span<std::byte> out) {
    while (!out.empty()) {
      const ShardPiece& piece = pieces_[piece_];
      const int64_t size = base::size_of(piece.tensor.dtype), left = piece.bytes() - at_,
                    n = std::min({left, chunk_ - at_ % chunk_, std::ssize(out)});
      QUINTET_CHECK(chunk_ % size == 0 && n % size == 0, "{} bytes of elements of {} at byte {} of {}", n,
                    size, at_, piece.tensor.name);
      const std::span<std::byte> part = out.first(static_cast<size_t>(n));
      source_(piece_, at_ / size, part);
      add(part, n == left);
      at_ += n;
      out = out.subspan(static_cast<size_t>(n));
      if (n == left) ++piece_, at_ = 0;
    }
  }

 private:
  void add(std::span<const std::byte> part, bool ends_piece) {
    uint64_t& sum = sums_[piece_][static_cast<size_t>(at_ / chunk_)];
    const bool begins = at_ % chunk_ == 0, ends = ends_piece || (at_ + std::ssize(part)) % chunk_ == 0;
    if (begins && ends) {
      sum = base::checksum_of(part);
      return;
    }
    if (begins) unfinished_ = base::Checksum();
    unfinished_.add(part);
    if (ends) sum = unfinished_.value();
  }

  const std::vector<ShardPiece>& pieces_;
  const PieceSource& source_;
  const int64_t chunk_;
  Sums& sums_;
  size_t piece_ = 0;
  int64_t at_ = 0;             // bytes of the piece before the next one
  base::Checksum unfinished_;  // of a chunk that is in several blocks
};

}  // namespace

void write_shard(const base::Path& path, const std::vector<ShardPiece>& pieces, const PieceSource& source,
                 const ShardOptions& options) {
  Sums sums = empty_sums(pieces, options.chunk_bytes);
  const auto header_bytes = static_cast<int64_t>(header_text(pieces, sums, options).size());
  QUINTET_CHECK(header_bytes <= kLargestHeader, "a shard of {} pieces has a header of {} bytes",
                pieces.size(), header_bytes);
  int64_t bytes = 0;
  for (const ShardPiece& piece : pieces) bytes += piece.bytes();
  base::OutputFile file(*options.files, path);
  const auto put = [&](int64_t position, std::span<const std::byte> part) {
    file.write(position, part);
    if (options.written) options.written(std::ssize(part));
  };
  DataStream data(pieces, source, options.chunk_bytes, sums);
  const base::DirectBuffer first(std::min(bytes, kWriteBlock)), second(bytes > kWriteBlock ? kWriteBlock : 0);
  std::optional<Background> writer;  // after what it uses
  if (bytes > kWriteBlock) {
    file.bypass_cache();
    writer.emplace();
  }
  for (int64_t begin = 0, n = 0; begin < bytes; begin += kWriteBlock, ++n) {
    const std::span block((n % 2 == 0 ? first : second).data(),
                          static_cast<size_t>(std::min(kWriteBlock, bytes - begin)));
    data.fill(block);
    if (!writer) {
      put(header_bytes + begin, block);
      continue;
    }
    writer->wait();
    writer->start([&put, block, position = header_bytes + begin] {
      // The end of the file goes through the system's memory.
      const size_t whole = block.size() - block.size() % base::kDirectBytes;
      if (whole > 0) put(position, block.first(whole));
      if (whole < block.size()) put(position + static_cast<int64_t>(whole), block.subspan(whole));
    });
  }
  if (writer) writer->wait();
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
