#include "data/token_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>

#include "base/error.h"
#include "base/text.h"

namespace quintet::data {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the header is stored little endian and copied without conversion");

constexpr std::array<char, 8> kMagic = {'Q', 'N', 'T', 'T', 'O', 'K', 'E', 'N'};
constexpr uint32_t kVersion = 2, kWithoutBlocks = 1;  // version 1 has no checksums of blocks

// docs/formats/token_file.md describes these fields.
struct Header {
  std::array<char, 8> magic;
  uint32_t version;
  uint32_t width;
  uint64_t tokens, vocab, documents, bin_checksum;
};
static_assert(sizeof(Header) == 48 && sizeof(Header) % alignof(uint64_t) == 0);

base::Path bin_of(const base::Path& prefix) { return prefix.string() + ".bin"; }
base::Path idx_of(const base::Path& prefix) { return prefix.string() + ".idx"; }

// A folder that `quintet prepare` has made.
bool is_prepared(const base::Path& path) {
  return base::directory_exists(path) && base::file_exists(path / "tokens.idx") &&
         base::file_exists(path / "manifest.json");
}

struct Pair {
  base::MappedFile bin, idx;
};

Header read_header(std::span<const std::byte> idx, const std::string& name) {
  if (idx.empty()) base::fail_user("'{}' is empty; expected a token file index", name);
  if (idx.size() < kMagic.size() || std::memcmp(idx.data(), kMagic.data(), kMagic.size()) != 0)
    base::fail_user("'{}' is not a token file index: it does not start with \"QNTTOKEN\"", name);
  if (idx.size() < sizeof(Header) + sizeof(uint64_t))
    base::fail_user("'{}' is truncated: {} bytes; the header and the checksum alone take {}", name,
                    idx.size(), sizeof(Header) + sizeof(uint64_t));
  Header header;
  std::memcpy(&header, idx.data(), sizeof(Header));
  if (header.version != kVersion && header.version != kWithoutBlocks)
    base::fail_user("'{}' uses token file format version {}; this build reads versions {} and {}", name,
                    header.version, kWithoutBlocks, kVersion);
  return header;
}

// How many checksums of blocks follow the offsets; whether they are as many as blocks is checked with the
// tokens.
uint64_t sums_in(std::span<const std::byte> idx, const Header& header) {
  return (idx.size() - sizeof(Header)) / sizeof(uint64_t) - header.documents - 2;
}

// Validates the whole index. Sizes are checked before contents, so that a truncated file is reported as such.
Header check_index(std::span<const std::byte> idx, const std::string& name) {
  const Header header = read_header(idx, name);
  const uint64_t entries = (idx.size() - sizeof(Header)) / sizeof(uint64_t);
  const bool has_blocks = header.version != kWithoutBlocks;
  if (header.documents >= entries || entries < header.documents + 2 ||
      (!has_blocks && entries > header.documents + 2) ||
      idx.size() != sizeof(Header) + entries * sizeof(uint64_t))
    base::fail_user("'{}' has the wrong size: {} bytes, but an index of {} documents takes 64 + 8 * {}{}",
                    name, idx.size(), header.documents, header.documents,
                    has_blocks ? ", and 8 for each block of tokens" : "");
  uint64_t stored;
  std::memcpy(&stored, idx.data() + idx.size() - sizeof stored, sizeof stored);
  if (stored != base::checksum_of(idx.first(idx.size() - sizeof stored)))
    base::fail_user("'{}' is damaged: checksum mismatch", name);
  if (header.tokens == 0 || header.documents == 0) base::fail_user("'{}' declares no tokens", name);
  if (header.width != 1 && header.width != 2 && header.width != 4)
    base::fail_user("'{}' declares a token size of {} bytes; 1, 2 and 4 are allowed", name, header.width);
  // A valid checksum does not rule out a faulty writer.
  if (header.vocab < 1 || header.vocab > uint64_t{1} << 31)
    base::fail_user("'{}' declares a vocabulary of {}; 1 to 2147483648 is allowed", name, header.vocab);
  if (header.tokens > uint64_t{1} << 60)
    base::fail_user("'{}' declares {} tokens; at most 2^60 are allowed", name, header.tokens);
  return header;
}

void check_offsets(std::span<const uint64_t> offsets, uint64_t tokens, const std::string& name) {
  const bool rising =
      std::adjacent_find(offsets.begin(), offsets.end(), std::greater_equal<>()) == offsets.end();
  if (offsets.front() != 0 || offsets.back() != tokens || !rising)
    base::fail_user("'{}' has invalid document offsets: they must increase from 0 to {}", name, tokens);
}

struct OpenedPair {
  Corpus corpus;
  uint64_t bin_checksum;
};

OpenedPair open_pair(const base::Path& path) {
  const base::Path prefix = token_file_prefix(path);
  const std::string bin_name = bin_of(prefix).string(), idx_name = idx_of(prefix).string();
  for (const std::string* name : {&bin_name, &idx_name})
    if (!base::file_exists(*name))
      base::fail_user("a token file needs both .bin and .idx, but '{}' is missing", *name);
  auto pair = std::make_shared<const Pair>(Pair{base::MappedFile(bin_name), base::MappedFile(idx_name)});
  const auto idx = pair->idx.bytes(), bin = pair->bin.bytes();
  const Header header = check_index(idx, idx_name);
  if (bin.size() != header.tokens * header.width)
    base::fail_user("'{}' {}: {} bytes, but its index declares {} tokens of {} bytes = {} bytes", bin_name,
                    bin.empty()                                 ? "is empty"
                    : bin.size() < header.tokens * header.width ? "is truncated"
                                                                : "is too long",
                    bin.size(), base::thousands(static_cast<int64_t>(header.tokens)), header.width,
                    header.tokens * header.width);
  // A mapping starts on a page boundary and the header size is a multiple of eight, so the table is aligned.
  const auto* table = reinterpret_cast<const uint64_t*>(idx.data() + sizeof(Header));
  const std::span<const uint64_t> offsets(table, header.documents + 1);
  check_offsets(offsets, header.tokens, idx_name);
  Corpus corpus(bin_name, bin, static_cast<TokenWidth>(header.width), static_cast<int64_t>(header.vocab),
                offsets, pair);
  if (header.version != kWithoutBlocks) {
    const uint64_t* sums = table + header.documents + 1;
    corpus.set_checksums(std::make_shared<const BlockChecksums>(
        bin_name, bin, std::vector<uint64_t>(sums, sums + sums_in(idx, header))));
  } else {
    corpus.set_checksums(checksums_of_manifest(prefix, bin_name, bin, static_cast<int64_t>(header.vocab)));
  }
  return {std::move(corpus), header.bin_checksum};
}

}  // namespace

base::Path token_file_prefix(const base::Path& path) {
  if (is_prepared(path)) return path / "tokens";
  const auto extension = path.extension();
  if (extension != ".bin" && extension != ".idx") return path;
  base::Path prefix = path;
  return prefix.replace_extension();
}

bool is_token_file(const base::Path& path) {
  const auto extension = path.extension();
  if (extension == ".bin" || extension == ".idx" || is_prepared(path)) return true;
  return !base::file_exists(path) && !base::directory_exists(path) && base::file_exists(idx_of(path));
}

Corpus open_token_file(const base::Path& path) { return open_pair(path).corpus; }

Corpus verify_token_file(const base::Path& path) {
  OpenedPair opened = open_pair(path);
  opened.corpus.check_tokens();  // before the checksum, because it reports the position
  if (base::checksum_of(opened.corpus.bytes()) != opened.bin_checksum)
    base::fail_user("'{}' is damaged or belongs to another index: checksum mismatch", opened.corpus.name());
  return std::move(opened.corpus);
}

TokenFileWriter::TokenFileWriter(const base::Path& prefix, int64_t vocab)
    : prefix_(token_file_prefix(prefix)), vocab_(vocab), width_(width_for(vocab)), bin_(bin_of(prefix_)) {}

void TokenFileWriter::add_document(std::span<const int32_t> ids) {
  if (ids.empty()) return;
  packed_.clear();
  pack_tokens(ids, vocab_, width_, packed_);
  checksum_.add(packed_);
  blocks_.add(packed_);
  bin_.write(packed_);
  offsets_.push_back(offsets_.back() + ids.size());
}

void TokenFileWriter::finish() {
  if (offsets_.size() < 2)
    base::fail_user("'{}': a token file must contain at least one token", prefix_.string());
  const Header header = {kMagic,
                         kVersion,
                         static_cast<uint32_t>(width_),
                         offsets_.back(),
                         static_cast<uint64_t>(vocab_),
                         offsets_.size() - 1,
                         checksum_.value()};
  const std::vector<uint64_t> blocks = blocks_.finish();
  base::Checksum sum;
  base::AtomicFile idx(idx_of(prefix_));
  for (const auto bytes :
       {std::as_bytes(std::span(&header, 1)), std::as_bytes(std::span<const uint64_t>(offsets_)),
        std::as_bytes(std::span<const uint64_t>(blocks))}) {
    sum.add(bytes);
    idx.write(bytes);
  }
  const uint64_t value = sum.value();
  idx.write(std::as_bytes(std::span(&value, 1)));
  bin_.commit();
  idx.commit();
}

}  // namespace quintet::data
