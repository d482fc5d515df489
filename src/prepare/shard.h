// One shard: documents of a stretch of the input, encoded. Its files are <folder>/<number>.bin (packed
// tokens), .lengths (int32 each), .keys and .minhash (of deduplication), and .json, which is written last.
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "base/file.h"
#include "data/corpus.h"
#include "prepare/minhash.h"
#include "text/record_reader.h"

namespace quintet::prepare {

// What became of the records of a shard.
struct Counts {
  int64_t records = 0, bytes = 0, tokens = 0;  // bytes, tokens: of documents before deduplication
  int64_t empty = 0, damaged = 0, binary = 0, filtered = 0, too_short = 0, too_long = 0;
  void add(const Counts& other);
};

struct ShardRecord {
  text::Position begin, end;
  bool last = false;  // the input ends with it
  Counts counts;
  std::vector<text::FinishedFile> finished;
  std::vector<int64_t> binary_files;
  std::vector<std::string> damage;  // the first messages
};
inline constexpr size_t kDamageShown = 10;

nlohmann::ordered_json json_of(const ShardRecord& record);
ShardRecord shard_record(const nlohmann::ordered_json& json);

base::Path shard_path(const base::Path& folder, int64_t number, const char* extension);
// The record of a finished shard; empty when it is not finished.
std::optional<ShardRecord> finished_shard(const base::Path& folder, int64_t number);

// A document that is kept, as far as one can see within its shard.
struct EncodedDocument {
  std::vector<std::byte> tokens;  // packed
  int32_t length = 0;             // in tokens
  base::Hash key;
  Signature signature;
};

class ShardWriter {
 public:
  ShardWriter(base::Path folder, int64_t number, bool keys, bool signatures);
  void add(const EncodedDocument& document);
  void finish(const ShardRecord& record);

 private:
  base::Path folder_;
  int64_t number_;
  base::AtomicFile bin_, lengths_;
  std::optional<base::AtomicFile> keys_, signatures_;
};

// The documents of all shards, numbered through. The files are mapped.
class Shards {
 public:
  Shards(const base::Path& folder, int64_t count, data::TokenWidth width, bool keys, bool signatures);
  int64_t documents() const { return first_.back(); }
  base::Hash key(int64_t document) const;
  std::span<const uint32_t, kHashes> signature(int64_t document) const;

  // Calls use(tokens, length) for each document in order that is in neither list.
  template <class Use>
  void for_each(std::span<const int64_t> skip_a, std::span<const int64_t> skip_b, Use&& use) const {
    int64_t document = 0;
    for (const Mapped& shard : shards_) {
      size_t at = 0;
      for (const int32_t length : shard.document_lengths()) {
        const size_t bytes = static_cast<size_t>(length) * static_cast<size_t>(width_);
        const bool a = !skip_a.empty() && skip_a.front() == document,
                   b = !skip_b.empty() && skip_b.front() == document;
        if (a) skip_a = skip_a.subspan(1);
        if (b) skip_b = skip_b.subspan(1);
        if (!a && !b) use(shard.bin.bytes().subspan(at, bytes), length);
        at += bytes;
        ++document;
      }
    }
  }

 private:
  struct Mapped {
    base::MappedFile bin, lengths;
    std::optional<base::MappedFile> keys, signatures;
    std::span<const int32_t> document_lengths() const;
  };
  std::pair<const Mapped*, size_t> find(int64_t document) const;
  data::TokenWidth width_;
  std::vector<Mapped> shards_;
  std::vector<int64_t> first_ = {0};  // documents before each shard
};

}  // namespace quintet::prepare
