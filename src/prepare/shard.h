// One shard: records of a stretch of the input, encoded. Its files are <folder>/<number>.bin (packed
// tokens), .lengths (int32 per document) and .json, which is written last; and, where they are needed,
// .keys and .minhash of each record for deduplication, .mask (a trained flag per token) and .records
// (int32: documents of each record, else one), .numbers (doubles of each record) and .columns (a line per
// document).
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
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
  int64_t turns = 0, ended = 0, straddling = 0;  // of conversations
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

// Which files a shard has.
struct ShardParts {
  bool keys = false, signatures = false;
  bool flags = false;  // and records of any number of documents
  bool columns = false;
  size_t numbers = 0;  // of each record
};

// A record that is kept, as far as one can see within its shard.
struct StoredRecord {
  std::vector<std::byte> tokens;  // of all documents, packed
  std::vector<int32_t> lengths;   // of each, in tokens
  std::vector<uint8_t> trained;
  std::string columns;
  std::vector<double> numbers;
  base::Hash key;
  Signature signature;
};

class ShardWriter {
 public:
  ShardWriter(base::Path folder, int64_t number, const ShardParts& parts);
  void add(const StoredRecord& record);
  void finish(const ShardRecord& record);

 private:
  base::AtomicFile* file(bool needed, const char* extension);
  base::Path folder_;
  int64_t number_;
  std::vector<std::unique_ptr<base::AtomicFile>> files_;
  base::AtomicFile *bin_, *lengths_, *keys_, *signatures_, *flags_, *records_, *columns_, *numbers_;
};

// What is stored of a record.
struct RecordView {
  std::span<const std::byte> tokens;
  std::span<const int32_t> lengths;
  std::span<const uint8_t> trained;
  std::string_view columns;  // a line per document
  std::span<const double> numbers;
};

// The records of all shards, numbered through. The files are mapped.
class Shards {
 public:
  Shards(const base::Path& folder, int64_t count, data::TokenWidth width, const ShardParts& parts);
  int64_t records() const { return first_.back(); }
  base::Hash key(int64_t record) const;
  std::span<const uint32_t, kHashes> signature(int64_t record) const;

  // Calls use(const RecordView&) for each record in order that is in neither list.
  void for_each(std::span<const int64_t> skip_a, std::span<const int64_t> skip_b,
                const std::function<void(const RecordView&)>& use) const;

 private:
  struct Mapped {
    base::MappedFile bin, lengths;
    std::optional<base::MappedFile> keys, signatures, flags, records, columns, numbers;
    int64_t count() const;  // of records
    std::vector<const base::MappedFile*> files() const;
  };
  std::pair<const Mapped*, size_t> find(int64_t record) const;
  data::TokenWidth width_;
  ShardParts parts_;
  std::vector<Mapped> shards_;
  std::vector<int64_t> first_ = {0};  // records before each shard
};

}  // namespace quintet::prepare
