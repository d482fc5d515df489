#include "prepare/shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/read_ahead.h"

namespace quintet::prepare {
namespace {

constexpr std::pair<const char*, int64_t Counts::*> kCounts[] = {
    {"records", &Counts::records},   {"bytes", &Counts::bytes},         {"tokens", &Counts::tokens},
    {"empty", &Counts::empty},       {"damaged", &Counts::damaged},     {"binary", &Counts::binary},
    {"filtered", &Counts::filtered}, {"too_short", &Counts::too_short}, {"too_long", &Counts::too_long},
    {"turns", &Counts::turns},       {"ended", &Counts::ended},         {"straddling", &Counts::straddling}};

nlohmann::ordered_json json_of_position(const text::Position& p) { return {p.file, p.record, p.offset}; }
text::Position position_of(const nlohmann::ordered_json& json) {
  return {json.at(0).get<int64_t>(), json.at(1).get<int64_t>(), json.at(2).get<int64_t>()};
}

}  // namespace

void Counts::add(const Counts& other) {
  for (const auto& [name, member] : kCounts) this->*member += other.*member;
}

nlohmann::ordered_json json_of(const ShardRecord& record) {
  nlohmann::ordered_json counts, finished = nlohmann::ordered_json::array();
  for (const auto& [name, member] : kCounts) counts[name] = record.counts.*member;
  for (const auto& file : record.finished)
    finished.push_back(
        {file.file, file.checksum ? nlohmann::ordered_json(*file.checksum) : nlohmann::ordered_json()});
  return {{"begin", json_of_position(record.begin)},
          {"end", json_of_position(record.end)},
          {"last", record.last},
          {"counts", counts},
          {"finished", finished},
          {"binary_files", record.binary_files},
          {"damage", record.damage}};
}

ShardRecord shard_record(const nlohmann::ordered_json& json) {
  ShardRecord out;
  out.begin = position_of(json.at("begin"));
  out.end = position_of(json.at("end"));
  out.last = json.at("last").get<bool>();
  for (const auto& [name, member] : kCounts) out.counts.*member = json.at("counts").value(name, int64_t{0});
  for (const auto& file : json.at("finished")) {
    out.finished.push_back({file.at(0).get<int64_t>(), std::nullopt});
    if (!file.at(1).is_null()) out.finished.back().checksum = file.at(1).get<uint64_t>();
  }
  out.binary_files = json.at("binary_files").get<std::vector<int64_t>>();
  out.damage = json.at("damage").get<std::vector<std::string>>();
  return out;
}

base::Path shard_path(const base::Path& folder, int64_t number, const char* extension) {
  return folder / fmt::format("{:06}{}", number, extension);
}

std::optional<ShardRecord> finished_shard(const base::Path& folder, int64_t number) {
  const base::Path path = shard_path(folder, number, ".json");
  if (!base::file_exists(path)) return std::nullopt;
  try {
    return shard_record(nlohmann::ordered_json::parse(base::read_file(path)));
  } catch (const nlohmann::json::exception& error) {
    base::fail_user("'{}' is damaged ({}); --overwrite starts again", path.string(), error.what());
  }
}

base::AtomicFile* ShardWriter::file(bool needed, const char* extension) {
  if (!needed) return nullptr;
  return files_.emplace_back(std::make_unique<base::AtomicFile>(shard_path(folder_, number_, extension)))
      .get();
}

ShardWriter::ShardWriter(base::Path folder, int64_t number, const ShardParts& parts)
    : folder_(std::move(folder)),
      number_(number),
      bin_(file(true, ".bin")),
      lengths_(file(true, ".lengths")),
      keys_(file(parts.keys, ".keys")),
      signatures_(file(parts.signatures, ".minhash")),
      flags_(file(parts.flags, ".mask")),
      records_(file(parts.flags, ".records")),
      columns_(file(parts.columns, ".columns")),
      numbers_(file(parts.numbers > 0, ".numbers")) {}

void ShardWriter::add(const StoredRecord& record) {
  bin_->write(record.tokens);
  lengths_->write(std::as_bytes(std::span(record.lengths)));
  if (keys_) keys_->write(std::as_bytes(std::span(&record.key, 1)));
  if (signatures_) signatures_->write(std::as_bytes(std::span(record.signature)));
  if (flags_) flags_->write(std::as_bytes(std::span(record.trained)));
  const auto documents = static_cast<int32_t>(record.lengths.size());
  if (records_) records_->write(std::as_bytes(std::span(&documents, 1)));
  if (columns_) columns_->write(record.columns);
  if (numbers_) numbers_->write(std::as_bytes(std::span(record.numbers)));
}

void ShardWriter::finish(const ShardRecord& record) {
  for (const auto& file : files_) file->commit();
  base::write_file_atomically(shard_path(folder_, number_, ".json"),
                              base::json_text(json_of(record), 1) + "\n");
}

namespace {

template <class T>
std::span<const T> table(const base::MappedFile& file) {
  const auto bytes = file.bytes();
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

// The first `lines` lines of a text, which is left with the rest.
std::string_view take_lines(std::string_view& text, size_t lines) {
  size_t end = 0;
  for (size_t i = 0; i < lines; ++i) end = std::min(text.find('\n', end), text.size() - 1) + 1;
  const std::string_view taken = text.substr(0, end);
  text.remove_prefix(end);
  return taken;
}

}  // namespace

Shards::Shards(const base::Path& folder, int64_t count, data::TokenWidth width, const ShardParts& parts)
    : width_(width), parts_(parts) {
  for (int64_t i = 0; i < count; ++i) {
    const auto mapped = [&](bool needed, const char* extension) {
      return needed ? std::optional(base::MappedFile(shard_path(folder, i, extension))) : std::nullopt;
    };
    Mapped shard{*mapped(true, ".bin"),
                 *mapped(true, ".lengths"),
                 mapped(parts.keys, ".keys"),
                 mapped(parts.signatures, ".minhash"),
                 mapped(parts.flags, ".mask"),
                 mapped(parts.flags, ".records"),
                 mapped(parts.columns, ".columns"),
                 mapped(parts.numbers > 0, ".numbers")};
    int64_t tokens = 0;
    for (const int32_t length : table<int32_t>(shard.lengths)) tokens += length;
    const auto require = [&](const base::MappedFile& file, int64_t bytes, const char* what) {
      if (static_cast<int64_t>(file.bytes().size()) != bytes)
        base::fail_user("shard {} in '{}' is damaged: {} bytes of {}, {} expected; --overwrite starts again",
                        i, folder.string(), file.bytes().size(), what, bytes);
    };
    require(shard.bin, tokens * static_cast<int64_t>(width), "tokens");
    if (shard.flags) require(*shard.flags, tokens, "flags");
    const int64_t records = shard.count();
    if (shard.keys) require(*shard.keys, records * int64_t{sizeof(base::Hash)}, "keys");
    if (shard.signatures) require(*shard.signatures, records * int64_t{sizeof(Signature)}, "signatures");
    if (shard.numbers)
      require(*shard.numbers, records * static_cast<int64_t>(parts.numbers * sizeof(double)), "numbers");
    first_.push_back(first_.back() + records);
    shards_.push_back(std::move(shard));
  }
}

std::vector<const base::MappedFile*> Shards::Mapped::files() const {
  std::vector<const base::MappedFile*> all = {&bin, &lengths};
  for (const auto* file : {&keys, &signatures, &flags, &records, &columns, &numbers})
    if (*file) all.push_back(&**file);
  return all;
}

int64_t Shards::Mapped::count() const { return std::ssize(table<int32_t>(records ? *records : lengths)); }

std::pair<const Shards::Mapped*, size_t> Shards::find(int64_t record) const {
  const auto shard = std::upper_bound(first_.begin(), first_.end(), record) - first_.begin() - 1;
  return {&shards_[static_cast<size_t>(shard)],
          static_cast<size_t>(record - first_[static_cast<size_t>(shard)])};
}

base::Hash Shards::key(int64_t record) const {
  const auto [shard, at] = find(record);
  base::Hash key;
  std::memcpy(&key, shard->keys->bytes().data() + at * sizeof key, sizeof key);
  return key;
}

std::span<const uint32_t, kHashes> Shards::signature(int64_t record) const {
  const auto [shard, at] = find(record);
  const auto bytes = shard->signatures->bytes().subspan(at * sizeof(Signature), sizeof(Signature));
  return std::span<const uint32_t, kHashes>(reinterpret_cast<const uint32_t*>(bytes.data()), kHashes);
}

void Shards::for_each(std::span<const int64_t> skip_a, std::span<const int64_t> skip_b,
                      const std::function<void(const RecordView&)>& use) const {
  const auto skips = [](std::span<const int64_t>& list, int64_t record) {
    if (list.empty() || list.front() != record) return false;
    list = list.subspan(1);
    return true;
  };
  int64_t number = 0;
  for (const Mapped& shard : shards_) {
    auto lengths = table<int32_t>(shard.lengths);
    const auto records = shard.records ? table<int32_t>(*shard.records) : std::span<const int32_t>();
    const auto text = shard.columns ? table<char>(*shard.columns) : std::span<const char>();
    std::string_view columns(text.data(), text.size());
    size_t token = 0;
    for (size_t i = 0; i < static_cast<size_t>(shard.count()); ++i, ++number) {
      const auto documents = records.empty() ? size_t{1} : static_cast<size_t>(records[i]);
      RecordView view{
          .tokens = {}, .lengths = lengths.first(documents), .trained = {}, .columns = {}, .numbers = {}};
      lengths = lengths.subspan(documents);
      size_t tokens = 0;
      for (const int32_t length : view.lengths) tokens += static_cast<size_t>(length);
      const auto width = static_cast<size_t>(width_);
      view.tokens = shard.bin.bytes().subspan(token * width, tokens * width);
      if (shard.flags) view.trained = table<uint8_t>(*shard.flags).subspan(token, tokens);
      if (shard.columns) view.columns = take_lines(columns, documents);
      if (shard.numbers)
        view.numbers = table<double>(*shard.numbers).subspan(i * parts_.numbers, parts_.numbers);
      token += tokens;
      const bool a = skips(skip_a, number), b = skips(skip_b, number);
      if (!a && !b) use(view);
    }
    for (const base::MappedFile* file : shard.files()) base::have_read(file->bytes());
  }
}

}  // namespace quintet::prepare
