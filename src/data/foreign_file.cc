#include "data/foreign_file.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/text.h"
#include "data/megatron_index.h"
#include "data/token_file.h"

namespace quintet::data {
namespace {

constexpr std::string_view kMegatronMagic("MMIDIDX\0\0", 9);
constexpr uint64_t kMegatronVersion = 1;
constexpr size_t kMegatronHeader = 9 + 8 + 1 + 8 + 8;
constexpr int32_t kSpeedRunMagic = 20240520;
constexpr size_t kSpeedRunHeader = 1024;

struct Mapped {
  base::MappedFile bin;
  std::vector<uint64_t> offsets;
  std::optional<base::MappedFile> mask = {};
};

// A value at a byte offset: the tables of these files are not aligned.
template <class T>
T value_at(std::span<const std::byte> bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

TokenWidth megatron_width(uint8_t code, const std::string& name) {
  switch (code) {
    case 1:
      return TokenWidth::U8;
    case 4:
      return TokenWidth::U32;  // signed; a negative id is outside every vocabulary
    case 8:
      return TokenWidth::U16;
    default:
      base::fail_user(
          "'{}' has tokens of Megatron's type {}; 1 (uint8), 4 (int32) and 8 (uint16) are supported", name,
          code);
  }
}

// Where documents begin, in tokens, from the lengths of the sequences and the sequences of each document.
std::vector<uint64_t> megatron_offsets(std::span<const std::byte> idx, const std::string& name,
                                       uint64_t width) {
  const auto sequences = value_at<uint64_t>(idx, 18), documents = value_at<uint64_t>(idx, 26);
  const uint64_t room = (idx.size() - kMegatronHeader) / 4;
  if (sequences == 0 || documents == 0 || sequences > room || documents > room ||
      idx.size() != kMegatronHeader + 12 * sequences + 8 * documents)
    base::fail_user(
        "'{}' has the wrong size: {} bytes, but an index of {} sequences and {} documents takes 34 + 12 * {} "
        "+ 8 * {}",
        name, idx.size(), sequences, documents, sequences, documents);
  const size_t lengths = kMegatronHeader, pointers = lengths + 4 * sequences,
               starts = pointers + 8 * sequences;
  std::vector<uint64_t> first_token(sequences + 1, 0);
  for (uint64_t i = 0; i < sequences; ++i) {
    const auto length = value_at<int32_t>(idx, lengths + 4 * i);
    const auto pointer = value_at<int64_t>(idx, pointers + 8 * i);
    if (length < 0 || pointer < 0 || static_cast<uint64_t>(pointer) != first_token[i] * width)
      base::fail_user("'{}': sequence {} (length {}, at byte {}) does not follow the one before it", name, i,
                      length, pointer);
    first_token[i + 1] = first_token[i] + static_cast<uint64_t>(length);
  }
  std::vector<uint64_t> offsets = {0};
  int64_t before = 0;
  for (uint64_t i = 0; i < documents; ++i) {
    const auto start = value_at<int64_t>(idx, starts + 8 * i);
    if (start < before || static_cast<uint64_t>(start) > sequences || (i == 0 && start != 0))
      base::fail_user("'{}': document {} begins with sequence {}, which is out of order", name, i, start);
    before = start;
    if (first_token[static_cast<size_t>(start)] > offsets.back())
      offsets.push_back(first_token[static_cast<size_t>(start)]);
  }
  if (static_cast<uint64_t>(before) != sequences)
    base::fail_user("'{}': its documents end with sequence {} of {}", name, before, sequences);
  return offsets;
}

Corpus made(std::string name, std::shared_ptr<Mapped> mapped, std::span<const std::byte> tokens,
            TokenWidth width, int64_t vocab) {
  if (mapped->offsets.size() < 2) base::fail_user("'{}' contains no tokens", name);
  const std::span<const uint64_t> offsets = mapped->offsets;
  std::span<const uint8_t> trained;
  if (mapped->mask) {
    const auto flags = mapped->mask->bytes();
    trained = {reinterpret_cast<const uint8_t*>(flags.data()), flags.size()};
  }
  return Corpus(std::move(name), tokens, width, vocab, offsets, std::move(mapped), trained);
}

}  // namespace

std::optional<Corpus> open_foreign_file(const base::Path& path, int64_t vocab) {
  const base::Path prefix = token_file_prefix(path);
  const std::string bin_name = prefix.string() + ".bin", idx_name = prefix.string() + ".idx";
  if (!base::file_exists(bin_name)) return std::nullopt;
  if (!base::file_exists(idx_name)) {
    if (path.extension() != ".bin") return std::nullopt;
    auto mapped = std::make_shared<Mapped>(Mapped{base::MappedFile(bin_name), {0}});
    auto bytes = mapped->bin.bytes();
    if (bytes.size() >= kSpeedRunHeader && value_at<int32_t>(bytes, 0) == kSpeedRunMagic) {
      const auto tokens = value_at<int32_t>(bytes, 8);
      bytes = bytes.subspan(kSpeedRunHeader);
      if (tokens < 0 || bytes.size() != 2 * static_cast<size_t>(tokens))
        base::fail_user("'{}' declares {} tokens of 2 bytes, but {} bytes follow its header", bin_name,
                        tokens, bytes.size());
    }
    if (bytes.size() % 2 != 0)
      base::fail_user(
          "'{}' has no .idx, so it is taken for 16-bit tokens as nanoGPT writes them; but its {} bytes are "
          "odd",
          bin_name, bytes.size());
    if (!bytes.empty()) mapped->offsets.push_back(bytes.size() / 2);
    Corpus corpus = made(bin_name, mapped, bytes, TokenWidth::U16, vocab);
    corpus.set_checksums(checksums_of_manifest(prefix, bin_name, bytes, vocab));
    return corpus;
  }
  const base::MappedFile index(idx_name);
  const auto idx = index.bytes();
  if (idx.size() < kMegatronMagic.size() ||
      std::memcmp(idx.data(), kMegatronMagic.data(), kMegatronMagic.size()) != 0)
    return std::nullopt;
  if (idx.size() < kMegatronHeader)
    base::fail_user("'{}' is truncated: {} bytes; its header takes {}", idx_name, idx.size(),
                    kMegatronHeader);
  if (const auto version = value_at<uint64_t>(idx, 9); version != kMegatronVersion)
    base::fail_user("'{}' has version {} of Megatron's index; version {} is supported", idx_name, version,
                    kMegatronVersion);
  const TokenWidth width = megatron_width(value_at<uint8_t>(idx, 17), idx_name);
  const auto bytes_each = static_cast<uint64_t>(width);
  auto mapped = std::make_shared<Mapped>(
      Mapped{base::MappedFile(bin_name), megatron_offsets(idx, idx_name, bytes_each)});
  const auto bin = mapped->bin.bytes();
  if (bin.size() != mapped->offsets.back() * bytes_each)
    base::fail_user("'{}' {}: {} bytes, but its index declares {} tokens of {} bytes", bin_name,
                    bin.size() < mapped->offsets.back() * bytes_each ? "is truncated" : "is too long",
                    bin.size(), base::thousands(static_cast<int64_t>(mapped->offsets.back())), bytes_each);
  if (const std::string mask_name = prefix.string() + ".mask"; base::file_exists(mask_name)) {
    mapped->mask.emplace(mask_name);
    if (const size_t flags = mapped->mask->bytes().size(); flags != mapped->offsets.back())
      base::fail_user(
          "'{}' does not belong to '{}': it has {} trained flags, one byte each, but there are {} tokens",
          mask_name, bin_name, base::thousands(static_cast<int64_t>(flags)),
          base::thousands(static_cast<int64_t>(mapped->offsets.back())));
  }
  if (mapped->mask) verify_mask(prefix, mapped->mask->bytes());
  Corpus corpus = made(bin_name, mapped, bin, width, vocab);
  corpus.set_checksums(checksums_of_manifest(prefix, bin_name, bin, vocab));
  return corpus;
}

MegatronWriter::MegatronWriter(const base::Path& prefix, int64_t vocab)
    : prefix_(token_file_prefix(prefix)),
      vocab_(vocab),
      width_(megatron_width_for(vocab)),
      bin_(prefix_.string() + ".bin") {}

void MegatronWriter::write_flags(std::span<const uint8_t> flags) {
  mask_->write(std::as_bytes(flags));
  mask_sum_.add(std::as_bytes(flags));
}

std::optional<uint64_t> MegatronWriter::mask_checksum() const {
  return mask_ ? std::optional(mask_sum_.value()) : std::nullopt;
}

void MegatronWriter::add_document(std::span<const int32_t> ids, std::span<const uint8_t> trained) {
  require_flags(ids, trained);
  if (ids.empty()) return;
  if (ids.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()))
    base::fail_user("a document of {} tokens is too long for Megatron's index (at most 2^31 - 1)",
                    ids.size());
  packed_.clear();
  pack_tokens(ids, vocab_, width_, packed_);
  bin_.write(packed_);
  if (!mask_ && !trained.empty()) {
    // All documents before are trained.
    mask_.emplace(prefix_.string() + ".mask");
    const std::vector<uint8_t> ones(size_t{1} << 16, 1);
    for (int64_t left = tokens_; left > 0; left -= static_cast<int64_t>(ones.size()))
      write_flags(std::span(ones).first(std::min(ones.size(), static_cast<size_t>(left))));
  }
  if (mask_) {
    flags_.assign(ids.size(), 1);
    write_flags(trained.empty() ? std::span<const uint8_t>(flags_) : trained);
  }
  summer_.add(packed_);
  lengths_.push_back(static_cast<int32_t>(ids.size()));
  tokens_ += static_cast<int64_t>(ids.size());
}

void MegatronWriter::finish() {
  if (lengths_.empty())
    base::fail_user("'{}': a token file must contain at least one token", prefix_.string());
  block_sums_ = summer_.finish();
  base::AtomicFile idx(prefix_.string() + ".idx");
  write_megatron_index(idx, width_, documents(), [&](const std::function<void(int32_t)>& use) {
    for (const int32_t length : lengths_) use(length);
  });
  // The mask of an earlier pair must not apply to this one, also when a crash ends the work in between.
  base::remove_file(prefix_.string() + ".mask");
  bin_.commit();
  if (mask_) mask_->commit();
  idx.commit();
}

}  // namespace quintet::data
