#include "checkpoint/reader.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <tuple>

#include "base/checksum.h"
#include "base/error.h"
#include "base/parallel_for.h"
#include "base/text.h"
#include "checkpoint/shard.h"

namespace quintet::checkpoint {
namespace {

constexpr size_t kOpenFiles = 8;
constexpr int64_t kBypassFrom = int64_t{1} << 20;  // smaller ones are faster when the system reads ahead

// Whether the system seems to have the file in its memory, which is then faster than the disk: a few parts of
// it are.
bool is_cached(const base::InputFile& file) {
  const int64_t bytes = std::min(kBypassFrom, file.size());
  for (const int64_t part : {0, 1, 2, 3, 4})
    if (!file.is_cached((file.size() - bytes) / 4 * part, bytes)) return false;
  return true;
}

}  // namespace

Reader::Reader(base::Path folder)
    : folder_(std::move(folder)),
      manifest_(parse_manifest(read_manifest(folder_ / kManifestFile), (folder_ / kManifestFile).string())) {}

Reader::Reader(base::Path folder, std::string_view manifest)
    : folder_(std::move(folder)), manifest_(parse_manifest(manifest, (folder_ / kManifestFile).string())) {}

const SavedTensor& Reader::at(std::string_view name) const {
  if (const SavedTensor* const found = manifest_.find(name)) return *found;
  std::vector<std::string> names;
  for (const SavedTensor& t : manifest_.tensors) names.push_back(t.info.name);
  const auto nearest = base::nearest_word(std::string(name), names);
  base::fail_user("{} has no tensor {}{}", folder_.string(), name,
                  nearest ? fmt::format("; did you mean {}?", *nearest) : "");
}

Reader::File Reader::opened(int index) {
  const std::lock_guard lock(mutex_);
  const auto known =
      std::find_if(open_.begin(), open_.end(), [&](const auto& entry) { return entry.first == index; });
  if (known != open_.end()) {
    std::rotate(known, known + 1, open_.end());
    return open_.back().second;
  }
  const ShardFile& entry = manifest_.files[static_cast<size_t>(index)];
  File found = std::make_shared<OpenFile>(folder_ / entry.name, true);
  if (is_cached(found->file)) found = std::make_shared<OpenFile>(folder_ / entry.name, false);
  const base::InputFile& file = found->file;
  if (file.size() != entry.bytes)
    base::fail_user("'{}' is {}: it has {} bytes, and the manifest says {}", file.path().string(),
                    file.size() < entry.bytes ? "truncated" : "damaged", file.size(), entry.bytes);
  if (entry.header_bytes > kLengthBytes + kLargestHeader)
    base::fail_user("'{}' cannot have a header of {} bytes: {} are allowed", file.path().string(),
                    entry.header_bytes, kLengthBytes + kLargestHeader);
  if (!checked_.contains(index)) {
    std::vector<std::byte> header(static_cast<size_t>(entry.header_bytes));
    file.read(0, header);
    if (base::checksum_of(header) != entry.header_sum)
      base::fail_user("'{}' is damaged: the checksum of its header is {}, and the manifest says {}",
                      file.path().string(), sum_text(base::checksum_of(header)), sum_text(entry.header_sum));
    checked_.insert(index);
  }
  if (open_.size() == kOpenFiles) open_.erase(open_.begin());
  return open_.emplace_back(index, std::move(found)).second;
}

template <class Fn>
void Reader::with_buffer(const Fn& fn) {
  std::optional<base::DirectBuffer> buffer;
  {
    const std::lock_guard lock(mutex_);
    if (!buffers_.empty()) {
      buffer.emplace(std::move(buffers_.back()));
      buffers_.pop_back();
    }
  }
  if (!buffer) buffer.emplace(manifest_.chunk_bytes + 2 * base::kDirectBytes);
  fn(*buffer);
  const std::lock_guard lock(mutex_);
  buffers_.push_back(std::move(*buffer));
}

Reader::Chunk Reader::chunk_of(const SavedTensor& tensor, const Piece& piece, size_t index,
                               int64_t chunk_bytes) {
  const int64_t begin = static_cast<int64_t>(index) * chunk_bytes,
                bytes = piece.region.count * base::size_of(tensor.info.dtype);
  return {.tensor = &tensor,
          .file = piece.file,
          .position = piece.position + begin,
          .bytes = std::min(chunk_bytes, bytes - begin),
          .sum = piece.sums[index]};
}

void Reader::require_sum(const Chunk& chunk, const base::InputFile& file, std::span<const std::byte> bytes) {
  bytes_read_ += chunk.bytes;
  if (const uint64_t sum = base::checksum_of(bytes); sum != chunk.sum)
    base::fail_user("'{}' is damaged: bytes {} to {}, of {}, have checksum {}, and the manifest says {}",
                    file.path().string(), chunk.position, chunk.position + chunk.bytes - 1,
                    chunk.tensor->info.name, sum_text(sum), sum_text(chunk.sum));
}

std::span<const std::byte> Reader::load(const Chunk& chunk, const base::DirectBuffer& buffer) {
  const File from = opened(chunk.file);
  std::span<const std::byte> data(buffer.data(), static_cast<size_t>(chunk.bytes));
  if (chunk.bytes >= kBypassFrom)
    data = from->file.read_direct(chunk.position, chunk.bytes, buffer);
  else
    from->file.read(chunk.position, {buffer.data(), static_cast<size_t>(chunk.bytes)});
  require_sum(chunk, from->file, data);
  return data;
}

bool Reader::load_in_place(const Chunk& chunk, std::span<std::byte> out) {
  const File from = opened(chunk.file);
  if (from->bypasses_cache) return false;
  from->file.read(chunk.position, out);
  require_sum(chunk, from->file, out);
  return true;
}

void Reader::read(const SavedTensor& tensor, const Region& wanted, std::span<std::byte> out) {
  const int64_t size = base::size_of(tensor.info.dtype), per_chunk = manifest_.chunk_bytes / size;
  QUINTET_CHECK(out.size() == static_cast<size_t>(wanted.count * size), "{} elements of {} into {} bytes",
                wanted.count, tensor.info.name, out.size());
  std::vector<std::pair<int64_t, int64_t>> found;  // ranges of `wanted`
  with_buffer([&](const base::DirectBuffer& buffer) {
    for (const Piece piece : tensor.pieces) {
      int64_t loaded = -1;
      std::span<const std::byte> data;
      for_each_common_run(wanted, piece.region, [&](int64_t to, int64_t from, int64_t length) {
        found.emplace_back(to, length);
        while (length > 0) {
          const int64_t index = from / per_chunk, begin = from - index * per_chunk,
                        n = std::min(length, per_chunk - begin);
          const std::span<std::byte> place =
              out.subspan(static_cast<size_t>(to * size), static_cast<size_t>(n * size));
          to += n, from += n, length -= n;
          if (index != loaded) {
            const Chunk c = chunk_of(tensor, piece, static_cast<size_t>(index), manifest_.chunk_bytes);
            if (c.bytes == std::ssize(place) && load_in_place(c, place)) continue;  // all of it is wanted
            data = load(c, buffer);
            loaded = index;
          }
          std::memcpy(place.data(), data.data() + begin * size, place.size());
        }
      });
    }
  });
  std::sort(found.begin(), found.end());
  int64_t end = 0;
  for (const auto& [at, length] : found) {
    if (at != end) break;
    end += length;
  }
  if (end != wanted.count) refuse_cover(tensor);
}

void Reader::read(const SavedTensor& tensor, int64_t first, std::span<std::byte> out) {
  Region region = Region::whole(tensor.info.shape);
  region.first = first;
  region.count = static_cast<int64_t>(out.size()) / base::size_of(tensor.info.dtype);
  QUINTET_CHECK(first >= 0 && region.count <= tensor.info.count() - first,
                "elements {} to {} of {}, which has {}", first, first + region.count, tensor.info.name,
                tensor.info.count());
  if (region.count > 0) read(tensor, region, out);
}

void Reader::stream(const SavedTensor& tensor, const Block& block, int64_t block_bytes) {
  const int64_t size = base::size_of(tensor.info.dtype), count = tensor.info.count(),
                per_block = std::max<int64_t>(1, block_bytes / size);
  std::vector<std::byte> elements;
  for (int64_t first = 0; first < count; first += per_block) {
    elements.resize(static_cast<size_t>(std::min(per_block, count - first) * size));
    read(tensor, first, elements);
    block(first, elements);
  }
}

int64_t Reader::verify_headers() {
  int64_t bytes = 0;
  for (size_t f = 0; f < manifest_.files.size(); ++f) {
    opened(static_cast<int>(f));
    bytes += manifest_.files[f].header_bytes;
  }
  return bytes;
}

int64_t Reader::verify() {
  std::atomic<int64_t> bytes = verify_headers();  // first: what follows takes the manifest at its word
  std::vector<Chunk> chunks;
  for (const SavedTensor& tensor : manifest_.tensors) {
    std::vector<Run> runs;
    for (const Piece piece : tensor.pieces) {
      for (size_t c = 0; c < piece.sums.size(); ++c)
        chunks.push_back(chunk_of(tensor, piece, c, manifest_.chunk_bytes));
      const Runs of(piece.region);
      for (int64_t i = 0; i < of.size(); ++i) runs.push_back(of[i]);
    }
    std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.tensor < b.tensor; });
    int64_t end = 0;
    for (const Run& run : runs) {
      if (run.tensor != end) break;
      end += run.length;
    }
    if (end != tensor.info.count()) refuse_cover(tensor);
  }
  std::sort(chunks.begin(), chunks.end(), [](const Chunk& a, const Chunk& b) {
    return std::tuple(a.file, a.position) < std::tuple(b.file, b.position);
  });
  const int64_t full = manifest_.tensor_bytes() / manifest_.chunk_bytes;
  base::parallel_for(
      static_cast<int>(std::min<int64_t>(kReadThreads, 1 + full)), chunks.size(), [&](size_t i) {
        with_buffer([&](const base::DirectBuffer& buffer) { bytes += std::ssize(load(chunks[i], buffer)); });
      });
  return bytes;
}

void Reader::refuse_cover(const SavedTensor& tensor) const {
  base::fail_user("{}: the pieces of {} do not cover it exactly once", (folder_ / kManifestFile).string(),
                  tensor.info.name);
}

}  // namespace quintet::checkpoint
