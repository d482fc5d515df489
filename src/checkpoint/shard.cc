#include "checkpoint/shard.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/checksum.h"
#include "base/error.h"
#include "base/json.h"
#include "checkpoint/write_queue.h"

namespace quintet::checkpoint {
namespace {

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
  // Aligns the data, so that large writes can bypass the page cache.
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

// The data section in the order of the file. Keeps the checksums of the pieces' chunks.
class DataStream {
 public:
  DataStream(const std::vector<ShardPiece>& pieces, const PieceSource& source, const ShardOptions& options,
             Sums& sums)
      : pieces_(pieces), source_(source), options_(options), sums_(sums), addresses_(pieces.size()) {}

  // The next bytes where they are, if the disk can read them there; otherwise empty. add() them next.
  std::span<const std::byte> in_place(int64_t bytes) {
    const std::byte* const begin = address(piece_);
    if (begin == nullptr || reinterpret_cast<uintptr_t>(begin + at_) % base::kDirectBytes != 0) return {};
    const std::span<const std::byte> block(begin + at_, static_cast<size_t>(bytes));
    int64_t found = pieces_[piece_].bytes() - at_;
    for (size_t i = piece_ + 1; found < bytes; ++i) {
      if (address(i) != block.data() + found) return {};
      found += pieces_[i].bytes();
    }
    return block;
  }
  void add(std::span<const std::byte> block) {
    advance(std::ssize(block), [&](int64_t done, int64_t n) {
      return block.subspan(static_cast<size_t>(done), static_cast<size_t>(n));
    });
  }

  // Fills `out` with the next bytes. No element is cut: blocks and pieces begin at multiples of their
  // elements' size.
  void fill(std::span<std::byte> out) {
    advance(std::ssize(out), [&](int64_t done, int64_t n) {
      const ShardPiece& piece = pieces_[piece_];
      const int64_t size = base::size_of(piece.tensor.dtype);
      QUINTET_CHECK(options_.chunk_bytes % size == 0 && n % size == 0,
                    "{} bytes of elements of {} at byte {} of {}", n, size, at_, piece.tensor.name);
      const std::span<std::byte> part = out.subspan(static_cast<size_t>(done), static_cast<size_t>(n));
      source_(piece_, at_ / size, part);
      return std::span<const std::byte>(part);
    });
  }

 private:
  const std::byte* address(size_t piece) {
    if (!options_.in_place) return nullptr;
    if (!addresses_[piece]) addresses_[piece] = options_.in_place(piece);
    return *addresses_[piece];
  }

  // Passes over the next bytes in parts that are in one chunk. part(done, n) returns n of them.
  template <class Part>
  void advance(int64_t bytes, const Part& part) {
    const int64_t chunk = options_.chunk_bytes;
    for (int64_t done = 0; done < bytes;) {
      const int64_t left = pieces_[piece_].bytes() - at_,
                    n = std::min({left, chunk - at_ % chunk, bytes - done});
      add_part(part(done, n), n == left);
      done += n;
      at_ += n;
      if (n == left) ++piece_, at_ = 0;
    }
  }

  void add_part(std::span<const std::byte> part, bool ends_piece) {
    const int64_t chunk = options_.chunk_bytes;
    uint64_t& sum = sums_[piece_][static_cast<size_t>(at_ / chunk)];
    const bool begins = at_ % chunk == 0, ends = ends_piece || (at_ + std::ssize(part)) % chunk == 0;
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
  const ShardOptions& options_;
  Sums& sums_;
  std::vector<std::optional<const std::byte*>> addresses_;
  size_t piece_ = 0;
  int64_t at_ = 0;             // bytes of the piece before the next one
  base::Checksum unfinished_;  // of a chunk that is in several blocks
};

// Blocks in place that are queued before the one that is written: enough to keep the disk busy. Checksums of
// more would compete with the copy of the state, which training waits for.
constexpr int64_t kBlocksAhead = 2;

// Two buffers and the queue that writes them, and blocks that are written in place, past the page cache.
class LargeFile {
 public:
  LargeFile(base::OutputFile& file, const WriteQueue::Write& put)
      : queue_([&put](int64_t position, auto bytes) {
          // The end of the file is not a whole number of disk blocks.
          const size_t whole = bytes.size() - bytes.size() % base::kDirectBytes;
          if (whole > 0) put(position, bytes.first(whole));
          if (whole < bytes.size()) put(position + static_cast<int64_t>(whole), bytes.subspan(whole));
        }) {
    file.bypass_cache();
  }

  void write(DataStream& data, int64_t position, int64_t bytes) {
    if (const std::span<const std::byte> block = data.in_place(bytes); !block.empty()) {
      queue_.wait(queue_.pushed() - kBlocksAhead);
      queue_.push(position, block);
      data.add(block);  // while it is written
      return;
    }
    Buffer& buffer = buffers_[used_++ % 2];
    if (!buffer.memory) buffer.memory.emplace(kWriteBlock);
    queue_.wait(buffer.pushed);
    const std::span<std::byte> out(buffer.memory->data(), static_cast<size_t>(bytes));
    data.fill(out);
    buffer.pushed = queue_.pushed() + 1;
    queue_.push(position, out);
  }
  void finish() { queue_.wait(queue_.pushed()); }

 private:
  struct Buffer {
    std::optional<base::DirectBuffer> memory;
    int64_t pushed = 0;  // blocks with the last one that is in it
  };
  Buffer buffers_[2];
  size_t used_ = 0;
  WriteQueue queue_;  // last: it uses the buffers
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
  DataStream data(pieces, source, options, sums);
  if (bytes > kWriteBlock) {
    const WriteQueue::Write write = put;
    LargeFile large(file, write);
    for (int64_t begin = 0; begin < bytes; begin += kWriteBlock)
      large.write(data, header_bytes + begin, std::min(kWriteBlock, bytes - begin));
    large.finish();
  } else {
    std::vector<std::byte> all(static_cast<size_t>(bytes));
    data.fill(all);
    put(header_bytes, all);
  }
  const std::string header = header_text(pieces, sums, options);
  put(0, std::as_bytes(std::span(header)));
  file.finish();
}

ShardContents read_shard(const base::Path& path, std::optional<int64_t> step, int64_t chunk_bytes) {
  const auto refuse = [&](const std::string& why) {
    base::fail_user("'{}' is not a shard{}: {}", path.string(), step ? fmt::format(" of step {}", *step) : "",
                    why);
  };
  const base::InputFile file(path);
  uint64_t length = 0;
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length > static_cast<uint64_t>(kLargestHeader)) refuse("its header is too large");
  std::string text(static_cast<size_t>(length) + kLengthBytes, '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  const Json header = base::parse_ordered_json(std::string_view(text).substr(kLengthBytes));
  ShardContents shard{.file = {.name = path.filename().string(),
                               .bytes = file.size(),
                               .header_bytes = static_cast<int64_t>(text.size()),
                               .header_sum = base::checksum_of(std::as_bytes(std::span(text)))},
                      .tensors = {}};
  try {
    const Json& metadata = header.at("__metadata__");
    if ((step && metadata.at(kStepKey) != std::to_string(*step)) ||
        metadata.at(kChunkKey) != std::to_string(chunk_bytes))
      refuse("its metadata says " + metadata.at(kStepKey).dump());
    int64_t data_end = 0;
    std::vector<uint64_t> sums;
    for (const Json& p : Json::parse(metadata.at(kPiecesKey).get<std::string>())) {
      const Json& entry = header.at(p.at("key").get<std::string>());
      TensorInfo info{.name = p.at("name").get<std::string>(),
                      .shape = p.at("shape").get<std::vector<int64_t>>()};
      const auto dtype = parse_safetensors_dtype(entry.at("dtype").get<std::string>());
      if (!dtype) refuse("unknown dtype " + entry.at("dtype").dump());
      info.dtype = *dtype;
      sums.clear();
      for (const Json& sum : p.at("sums")) sums.push_back(parse_sum(sum.get<std::string>()).value());
      PieceList piece;
      piece.add(
          {.position = static_cast<int64_t>(text.size()) + entry.at("data_offsets").at(0).get<int64_t>(),
           .region = region_of(p.at("region"), info.shape),
           .sums = sums});
      data_end = std::max(data_end, entry.at("data_offsets").at(1).get<int64_t>());
      shard.tensors.push_back({.info = std::move(info), .pieces = std::move(piece)});
    }
    if (data_end + static_cast<int64_t>(text.size()) != file.size())
      refuse(fmt::format("it has {} bytes, expected {}", file.size(),
                         data_end + static_cast<int64_t>(text.size())));
  } catch (const nlohmann::json::exception& e) {
    refuse(e.what());
  } catch (const std::bad_optional_access&) {
    refuse("a checksum is not 16 hexadecimal digits");
  }
  return shard;
}

ManifestBuilder::ManifestBuilder(int64_t step, Json run) {
  manifest_.step = step;
  manifest_.run = std::move(run);
}

void ManifestBuilder::add(ShardContents shard) {
  const int number = static_cast<int>(manifest_.files.size());
  manifest_.files.push_back(std::move(shard.file));
  std::vector<SavedTensor>& tensors = manifest_.tensors;
  for (SavedTensor& t : shard.tensors) {
    const auto [place, is_new] = places_.try_emplace(t.info.name, tensors.size());
    if (is_new) tensors.push_back({.info = t.info, .pieces = {}});
    SavedTensor& into = tensors[place->second];
    QUINTET_CHECK(into.info.shape == t.info.shape && into.info.dtype == t.info.dtype,
                  "ranks saved {} with different shapes or types", t.info.name);
    for (Piece piece : t.pieces) {
      piece.file = number;
      into.pieces.add(piece);
    }
  }
}

Manifest ManifestBuilder::finish() {
  std::vector<SavedTensor>& tensors = manifest_.tensors;
  for (SavedTensor& t : tensors) t.pieces.shrink();
  std::sort(tensors.begin(), tensors.end(),
            [](const SavedTensor& a, const SavedTensor& b) { return a.info.name < b.info.name; });
  return std::move(manifest_);
}

}  // namespace quintet::checkpoint
