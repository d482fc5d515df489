#include "data/block_checksums.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/parallel_for.h"
#include "base/read_ahead.h"
#include "config/codes.h"

namespace quintet::data {
namespace {

constexpr size_t kSumDigits = 16;

std::vector<uint64_t> sums_of_text(std::string_view text, const std::string& name) {
  std::vector<uint64_t> sums;
  for (size_t at = 0; at < text.size(); at += kSumDigits) {
    const std::string_view digits = text.substr(at, kSumDigits);
    uint64_t sum = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), sum, 16);
    if (digits.size() != kSumDigits || error != std::errc() || end != digits.data() + digits.size())
      base::fail_user("'{}' is damaged: \"block_xxh3\" must have 16 hexadecimal digits per block", name);
    sums.push_back(sum);
  }
  return sums;
}

// The manifest of a token file and its name; null when there is none.
std::pair<std::string, nlohmann::json> manifest_of(const base::Path& prefix) {
  std::string manifest = prefix.string() + ".json";
  if (!base::file_exists(manifest) && prefix.filename() == "tokens")
    manifest = (prefix.parent_path() / "manifest.json").string();
  if (!base::file_exists(manifest)) return {manifest, nullptr};
  return {manifest, base::parse_json(base::read_file(manifest))};
}

}  // namespace

void BlockSummer::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto n = std::min(bytes.size(), static_cast<size_t>(kChecksumBlock - held_));
    sum_->add(bytes.first(n));
    bytes = bytes.subspan(n);
    held_ += static_cast<int64_t>(n);
    if (held_ < kChecksumBlock) continue;
    sums_.push_back(sum_->value());
    sum_.emplace();
    held_ = 0;
  }
}

std::vector<uint64_t> BlockSummer::finish() {
  if (held_ > 0) sums_.push_back(sum_->value());
  held_ = 0;
  return std::move(sums_);
}

BlockChecksums::BlockChecksums(std::string name, std::span<const std::byte> bytes, std::vector<uint64_t> sums,
                               std::string remedy)
    : name_(std::move(name)),
      remedy_(std::move(remedy)),
      bytes_(bytes),
      sums_(std::move(sums)),
      verified_(sums_.size()) {
  const size_t blocks = (bytes_.size() + kChecksumBlock - 1) / kChecksumBlock;
  if (sums_.size() != blocks)
    base::fail_user(
        "'{}' has {} bytes, which are {} blocks, but checksums of {} blocks: it was changed, or "
        "belongs to another index or manifest",
        name_, bytes_.size(), blocks, sums_.size());
}

void BlockChecksums::will_verify(int64_t begin, int64_t end) const {
  for (int64_t block = begin / kChecksumBlock; block * kChecksumBlock < end; ++block) {
    if (verified_[static_cast<size_t>(block)].load(std::memory_order_relaxed)) continue;
    const auto first = static_cast<size_t>(block * kChecksumBlock);
    base::will_read(bytes_.subspan(first, std::min(bytes_.size() - first, size_t{kChecksumBlock})));
  }
}

void BlockChecksums::verify(int64_t begin, int64_t end) const {
  for (int64_t block = begin / kChecksumBlock; block * kChecksumBlock < end; ++block) {
    std::atomic<bool>& done = verified_[static_cast<size_t>(block)];
    if (done.load(std::memory_order_relaxed)) continue;
    const auto first = static_cast<size_t>(block * kChecksumBlock);
    const auto part = bytes_.subspan(first, std::min(bytes_.size() - first, size_t{kChecksumBlock}));
    const uint64_t expected = sums_[static_cast<size_t>(block)], seen = base::checksum_of(part);
    if (seen != expected)
      config::fail_coded(
          config::kDataIsSound,
          "'{}' is damaged: block {} of {} (bytes {} to {}) has checksum {:016x}, expected {:016x}; {}",
          name_, block, sums_.size(), first, first + part.size() - 1, seen, expected, remedy_);
    done.store(true, std::memory_order_relaxed);
  }
}

void verify_mask(const base::Path& prefix, std::span<const std::byte> mask) {
  const auto [manifest, json] = manifest_of(prefix);
  if (!json.is_object() || !json.contains("mask_xxh3")) return;
  const std::string seen = fmt::format("{:016x}", base::checksum_of(mask));
  if (json.at("mask_xxh3") != seen)
    config::fail_coded(
        config::kDataIsSound,
        "'{}.mask' is damaged: its checksum is {}, but '{}' has another; copy the file again, or write it "
        "again with 'quintet prepare'",
        prefix.string(), seen, manifest);
}

std::shared_ptr<const BlockChecksums> checksums_of_manifest(const base::Path& prefix, const std::string& file,
                                                            std::span<const std::byte> tokens,
                                                            int64_t vocab) {
  const auto [manifest, json] = manifest_of(prefix);
  if (!json.is_object() || !json.contains("block_xxh3")) return nullptr;  // somebody else's file
  const nlohmann::json& sums = json.at("block_xxh3");
  if (!sums.is_string() || json.value("block_bytes", nlohmann::json()) != kChecksumBlock)
    base::fail_user("'{}' is damaged: \"block_xxh3\" must be a string, and \"block_bytes\" {}", manifest,
                    kChecksumBlock);
  std::vector<uint64_t> list = sums_of_text(sums.get<std::string>(), manifest);
  if (!json.contains("largest_id"))
    return std::make_shared<const BlockChecksums>(file, tokens, std::move(list));
  const nlohmann::json& largest = json.at("largest_id");
  if (!largest.is_number_unsigned())
    base::fail_user("'{}' is damaged: \"largest_id\" must be a number", manifest);
  if (const auto id = largest.get<uint64_t>(); id >= static_cast<uint64_t>(vocab))
    config::fail_coded(
        config::kDataIsSound,
        "'{}' contains ids up to {} (so '{}' says), which are outside the vocabulary of {} (ids 0 "
        "to {}): name the tokenizer that wrote it",
        file, id, manifest, vocab, vocab - 1);
  return std::make_shared<const BlockChecksums>(
      file, tokens, std::move(list),
      fmt::format(
          "copy the file again; if it was changed on purpose, remove '{}' and run 'quintet data check'",
          manifest));
}

std::vector<uint64_t> block_sums(std::span<const std::byte> bytes, int threads) {
  constexpr auto kBlock = static_cast<size_t>(kChecksumBlock);
  std::vector<uint64_t> sums((bytes.size() + kBlock - 1) / kBlock);
  base::parallel_for(threads, sums.size(), [&](size_t i) {
    sums[i] = base::checksum_of(bytes.subspan(i * kBlock, std::min(kBlock, bytes.size() - i * kBlock)));
  });
  return sums;
}

std::string text_of_sums(std::span<const uint64_t> sums) {
  std::string text;
  for (const uint64_t sum : sums) text += fmt::format("{:016x}", sum);
  return text;
}

}  // namespace quintet::data
