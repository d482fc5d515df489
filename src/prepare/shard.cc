#include "prepare/shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"

namespace quintet::prepare {
namespace {

constexpr std::pair<const char*, int64_t Counts::*> kCounts[] = {
    {"records", &Counts::records},   {"bytes", &Counts::bytes},         {"tokens", &Counts::tokens},
    {"empty", &Counts::empty},       {"damaged", &Counts::damaged},     {"binary", &Counts::binary},
    {"filtered", &Counts::filtered}, {"too_short", &Counts::too_short}, {"too_long", &Counts::too_long}};

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
  for (const auto& [name, member] : kCounts) out.counts.*member = json.at("counts").at(name).get<int64_t>();
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

ShardWriter::ShardWriter(base::Path folder, int64_t number, bool keys, bool signatures)
    : folder_(std::move(folder)),
      number_(number),
      bin_(shard_path(folder_, number, ".bin")),
      lengths_(shard_path(folder_, number, ".lengths")) {
  if (keys) keys_.emplace(shard_path(folder_, number, ".keys"));
  if (signatures) signatures_.emplace(shard_path(folder_, number, ".minhash"));
}

void ShardWriter::add(const EncodedDocument& document) {
  bin_.write(document.tokens);
  lengths_.write(std::as_bytes(std::span(&document.length, 1)));
  if (keys_) keys_->write(std::as_bytes(std::span(&document.key, 1)));
  if (signatures_) signatures_->write(std::as_bytes(std::span(document.signature)));
}

void ShardWriter::finish(const ShardRecord& record) {
  bin_.commit();
  lengths_.commit();
  if (keys_) keys_->commit();
  if (signatures_) signatures_->commit();
  base::write_file_atomically(shard_path(folder_, number_, ".json"),
                              base::json_text(json_of(record), 1) + "\n");
}

Shards::Shards(const base::Path& folder, int64_t count, data::TokenWidth width, bool keys, bool signatures)
    : width_(width) {
  for (int64_t i = 0; i < count; ++i) {
    Mapped shard{base::MappedFile(shard_path(folder, i, ".bin")),
                 base::MappedFile(shard_path(folder, i, ".lengths")),
                 {},
                 {}};
    if (keys) shard.keys.emplace(shard_path(folder, i, ".keys"));
    if (signatures) shard.signatures.emplace(shard_path(folder, i, ".minhash"));
    int64_t tokens = 0;
    for (const int32_t length : shard.document_lengths()) tokens += length;
    if (static_cast<int64_t>(shard.bin.bytes().size()) != tokens * static_cast<int64_t>(width))
      base::fail_user(
          "shard {} in '{}' is damaged: {} bytes of tokens, {} expected; --overwrite starts again", i,
          folder.string(), shard.bin.bytes().size(), tokens * static_cast<int64_t>(width));
    first_.push_back(first_.back() + static_cast<int64_t>(shard.document_lengths().size()));
    shards_.push_back(std::move(shard));
  }
}

std::span<const int32_t> Shards::Mapped::document_lengths() const {
  const auto bytes = lengths.bytes();
  return {reinterpret_cast<const int32_t*>(bytes.data()), bytes.size() / sizeof(int32_t)};
}

std::pair<const Shards::Mapped*, size_t> Shards::find(int64_t document) const {
  const auto shard = std::upper_bound(first_.begin(), first_.end(), document) - first_.begin() - 1;
  return {&shards_[static_cast<size_t>(shard)],
          static_cast<size_t>(document - first_[static_cast<size_t>(shard)])};
}

base::Hash Shards::key(int64_t document) const {
  const auto [shard, at] = find(document);
  base::Hash key;
  std::memcpy(&key, shard->keys->bytes().data() + at * sizeof key, sizeof key);
  return key;
}

std::span<const uint32_t, kHashes> Shards::signature(int64_t document) const {
  const auto [shard, at] = find(document);
  const auto bytes = shard->signatures->bytes().subspan(at * sizeof(Signature), sizeof(Signature));
  return std::span<const uint32_t, kHashes>(reinterpret_cast<const uint32_t*>(bytes.data()), kHashes);
}

}  // namespace quintet::prepare
