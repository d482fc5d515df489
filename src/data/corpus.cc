#include "data/corpus.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "base/checksum.h"
#include "base/error.h"
#include "base/parallel_for.h"
#include "base/plural.h"
#include "base/read_ahead.h"

namespace quintet::data {
namespace {

static_assert(std::endian::native == std::endian::little,
              "tokens and offsets are stored little endian and used without conversion");

// Returns the index of the first token that is not below `vocab`, or the count when all are.
template <class T>
size_t widen(const std::byte* from, std::span<int32_t> out, uint32_t vocab) {
  uint32_t largest = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    out[i] = static_cast<int32_t>(value);
    largest = std::max<uint32_t>(largest, value);
  }
  if (largest < vocab) return out.size();
  const auto bad = [&](int32_t id) { return static_cast<uint32_t>(id) >= vocab; };
  return static_cast<size_t>(std::find_if(out.begin(), out.end(), bad) - out.begin());
}

template <class T>
void pack(std::span<const int32_t> ids, std::vector<std::byte>& out) {
  const size_t at = out.size();
  out.resize(at + ids.size() * sizeof(T));
  for (size_t i = 0; i < ids.size(); ++i) {
    const T value = static_cast<T>(ids[i]);
    std::memcpy(out.data() + at + i * sizeof(T), &value, sizeof(T));
  }
}

struct Storage {
  std::vector<std::byte> tokens;
  std::vector<uint64_t> offsets = {0};
  std::vector<uint8_t> trained;
};

constexpr size_t kWholeSum = size_t{1} << 28;

// The bytes, or evenly spaced parts of many.
void add_bytes(base::Checksum& sum, std::span<const std::byte> bytes) {
  constexpr size_t kParts = 64, kPart = size_t{1} << 20;
  if (bytes.size() <= kWholeSum) return sum.add(bytes);
  for (size_t i = 0; i < kParts; ++i)
    sum.add(bytes.subspan((bytes.size() - kPart) / (kParts - 1) * i, kPart));
}

}  // namespace

TokenWidth width_for(int64_t vocab) {
  if (vocab < 1 || vocab > int64_t{std::numeric_limits<int32_t>::max()} + 1)
    base::fail_user("the vocabulary size is {}; it must be between 1 and 2147483648", vocab);
  return vocab <= 256 ? TokenWidth::U8 : vocab <= 65536 ? TokenWidth::U16 : TokenWidth::U32;
}

void pack_tokens(std::span<const int32_t> ids, int64_t vocab, TokenWidth width, std::vector<std::byte>& out) {
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= vocab)
      base::fail_user("token {} at position {} of a document is outside the vocabulary of {} (ids 0 to {})",
                      ids[i], i, vocab, vocab - 1);
  switch (width) {
    case TokenWidth::U8:
      return pack<uint8_t>(ids, out);
    case TokenWidth::U16:
      return pack<uint16_t>(ids, out);
    case TokenWidth::U32:
      return pack<uint32_t>(ids, out);
  }
}

Corpus::Corpus(std::string name, std::span<const std::byte> tokens, TokenWidth width, int64_t vocab,
               std::span<const uint64_t> offsets, std::shared_ptr<const void> owner,
               std::span<const uint8_t> trained)
    : name_(std::move(name)),
      bytes_(tokens),
      width_(width),
      vocab_(vocab),
      offsets_(offsets),
      owner_(std::move(owner)),
      trained_(trained) {
  QUINTET_CHECK(offsets_.size() >= 2 && offsets_.front() == 0, "corpus '{}' has no documents", name_);
  QUINTET_CHECK(bytes_.size() == offsets_.back() * static_cast<size_t>(width_),
                "corpus '{}': {} bytes do not match {} tokens", name_, bytes_.size(), offsets_.back());
  QUINTET_CHECK(trained_.empty() || trained_.size() == offsets_.back(),
                "corpus '{}': {} flags do not match {} tokens", name_, trained_.size(), offsets_.back());
}

Corpus Corpus::joined(std::vector<Corpus> parts) {
  QUINTET_CHECK(!parts.empty(), "no corpora to join");
  auto all = std::make_shared<Parts>();
  TokenWidth width = TokenWidth::U8;
  int64_t vocab = 0;
  for (const Corpus& part : parts) {
    if (!part.trained_.empty())
      base::fail_user(
          "'{}' has trained flags (.mask), and several token files with flags cannot be one set: list them "
          "in data.blend",
          part.name_);
    const uint64_t before = all->offsets.back();
    for (size_t i = 1; i < part.offsets_.size(); ++i) all->offsets.push_back(before + part.offsets_[i]);
    all->first.push_back(static_cast<int64_t>(all->offsets.back()));
    width = std::max(width, part.width_);
    vocab = std::max(vocab, part.vocab_);
  }
  const std::string name =
      fmt::format("{} and {} more", parts[0].name_, base::counted(parts.size() - 1, "token file"));
  all->corpora = std::move(parts);
  Corpus corpus(*all, name, width, vocab);
  corpus.parts_ = std::move(all);
  corpus.offsets_ = corpus.parts_->offsets;
  return corpus;
}

Corpus::Corpus(const Parts& parts, std::string name, TokenWidth width, int64_t vocab)
    : name_(std::move(name)), width_(width), vocab_(vocab), offsets_(parts.offsets) {}

template <class Use>
void Corpus::each_part(int64_t begin, int64_t count, const Use& use) const {
  const auto& first = parts_->first;
  for (auto i = static_cast<size_t>(std::ranges::upper_bound(first, begin) - first.begin()) - 1; count > 0;
       ++i) {
    const int64_t n = std::min(count, first[i + 1] - begin);
    use(parts_->corpora[i], begin - first[i], n);
    begin += n;
    count -= n;
  }
}

std::span<const std::byte> Corpus::bytes_of(int64_t begin, int64_t count) const {
  std::span<const std::byte> found;
  if (parts_) {
    each_part(begin, count, [&](const Corpus& part, int64_t at, int64_t n) {
      QUINTET_CHECK(n == count, "{} tokens of several files as one", count);
      found = part.bytes_of(at, n);
    });
    return found;
  }
  const auto width = static_cast<size_t>(width_);
  return bytes_.subspan(static_cast<size_t>(begin) * width, static_cast<size_t>(count) * width);
}

Corpus Corpus::from_documents(std::string name, int64_t vocab,
                              const std::vector<std::vector<int32_t>>& documents) {
  CorpusBuilder builder(std::move(name), vocab);
  for (const auto& ids : documents) builder.add_document(ids);
  return builder.finish();
}

void Corpus::read(int64_t begin, std::span<int32_t> out) const {
  QUINTET_CHECK(begin >= 0 && begin + static_cast<int64_t>(out.size()) <= tokens(),
                "tokens {} to {} of {} requested", begin, begin + static_cast<int64_t>(out.size()), tokens());
  if (parts_) {
    each_part(begin, static_cast<int64_t>(out.size()), [&](const Corpus& part, int64_t at, int64_t n) {
      part.read(at, out.first(static_cast<size_t>(n)));
      out = out.subspan(static_cast<size_t>(n));
    });
    return;
  }
  const auto size = static_cast<int64_t>(width_);
  if (blocks_ && !out.empty())
    blocks_->verify(begin * size, (begin + static_cast<int64_t>(out.size())) * size);
  const std::byte* from = bytes_.data() + begin * size;
  const auto vocab = static_cast<uint32_t>(vocab_);
  size_t good = 0;
  switch (width_) {
    case TokenWidth::U8:
      good = widen<uint8_t>(from, out, vocab);
      break;
    case TokenWidth::U16:
      good = widen<uint16_t>(from, out, vocab);
      break;
    case TokenWidth::U32:
      good = widen<uint32_t>(from, out, vocab);
      break;
  }
  if (good == out.size()) return;
  const int64_t at = begin + static_cast<int64_t>(good);
  base::fail_user(
      "'{}': token {} at position {} (document {}) is outside the vocabulary of {} (ids 0 to {}); {}", name_,
      out[good], at, document_of(at), vocab_, vocab_ - 1,
      out[good] < 0 ? "negative numbers, which others mark padding by, are no ids"
                    : "the data is damaged or was made with a different tokenizer");
}

void Corpus::will_read(int64_t begin, int64_t count) const {
  if (parts_) {
    each_part(begin, count, [](const Corpus& part, int64_t at, int64_t n) { part.will_read(at, n); });
    return;
  }
  if (blocks_ && count > 0) {
    const auto width = static_cast<int64_t>(width_);
    blocks_->will_verify(begin * width, (begin + count) * width);
  }
  base::will_read(bytes_of(begin, count));
  if (!trained_.empty())
    base::will_read(std::as_bytes(trained_.subspan(static_cast<size_t>(begin), static_cast<size_t>(count))));
}

int64_t Corpus::document_of(int64_t at) const {
  QUINTET_CHECK(at >= 0 && at < tokens(), "token {} requested of {}", at, tokens());
  const auto next = std::upper_bound(offsets_.begin(), offsets_.end(), static_cast<uint64_t>(at));
  return next - offsets_.begin() - 1;
}

bool Corpus::has_checksums() const {
  if (parts_) return std::ranges::all_of(parts_->corpora, &Corpus::has_checksums);
  return blocks_ != nullptr;
}

void Corpus::check_tokens(int threads) const {
  constexpr int64_t kChunk = int64_t{1} << 20;
  base::parallel_for(threads, static_cast<size_t>((tokens() + kChunk - 1) / kChunk), [&](size_t i) {
    thread_local std::vector<int32_t> chunk(kChunk);
    const int64_t begin = static_cast<int64_t>(i) * kChunk;
    read(begin, std::span(chunk).first(static_cast<size_t>(std::min(tokens() - begin, kChunk))));
  });
  check_flags();
}

void Corpus::check_flags() const {
  const auto bad = std::ranges::find_if(trained_, [](uint8_t flag) { return flag > 1; });
  if (bad != trained_.end())
    base::fail_user("'{}': the trained flag of token {} is {}; 0 and 1 are allowed; its .mask is damaged",
                    name_, bad - trained_.begin(), *bad);
}

bool Corpus::fingerprint_is_whole() const {
  if (parts_) return std::ranges::all_of(parts_->corpora, &Corpus::fingerprint_is_whole);
  return bytes_.size() <= kWholeSum && trained_.size() <= kWholeSum;
}

uint64_t Corpus::fingerprint() const {
  base::Checksum sum;
  if (parts_) {
    for (const Corpus& part : parts_->corpora) {
      const uint64_t one = part.fingerprint();
      sum.add(std::as_bytes(std::span(&one, 1)));
    }
    return sum.value();
  }
  const uint64_t facts[2] = {static_cast<uint64_t>(width_), bytes_.size()};
  sum.add(std::as_bytes(std::span(facts)));
  sum.add(std::as_bytes(offsets_));
  add_bytes(sum, bytes_);
  add_bytes(sum, std::as_bytes(trained_));
  return sum.value();
}

void Corpus::require_vocab(int64_t model_vocab) const {
  if (vocab_ > model_vocab)
    base::fail_user(
        "'{}' contains ids up to {}, but the model's vocabulary is {}: set model.vocab to at least {}, or "
        "use data from a tokenizer with at most {} ids",
        name_, vocab_ - 1, model_vocab, vocab_, model_vocab);
}

CorpusBuilder::CorpusBuilder(std::string name, int64_t vocab)
    : name_(std::move(name)), vocab_(vocab), width_(width_for(vocab)) {}

void require_flags(std::span<const int32_t> ids, std::span<const uint8_t> trained) {
  if (!trained.empty() && trained.size() != ids.size())
    base::fail_user("a document of {} tokens has {} trained flags; one per token is needed", ids.size(),
                    trained.size());
  for (const uint8_t flag : trained)
    if (flag > 1) base::fail_user("a trained flag is {}; 0 and 1 are allowed", flag);
}

void CorpusBuilder::add_document(std::span<const int32_t> ids, std::span<const uint8_t> trained) {
  require_flags(ids, trained);
  if (ids.empty()) return;
  pack_tokens(ids, vocab_, width_, tokens_);
  if (trained_.empty() && !trained.empty()) trained_.assign(offsets_.back(), 1);
  offsets_.push_back(offsets_.back() + ids.size());
  if (!trained.empty())
    trained_.insert(trained_.end(), trained.begin(), trained.end());
  else if (!trained_.empty())
    trained_.resize(offsets_.back(), 1);
}

Corpus CorpusBuilder::finish() {
  if (offsets_.size() < 2) base::fail_user("'{}' is empty: it contains no tokens", name_);
  auto storage =
      std::make_shared<Storage>(Storage{std::move(tokens_), std::move(offsets_), std::move(trained_)});
  Corpus corpus(name_, storage->tokens, width_, vocab_, storage->offsets, storage, storage->trained);
  corpus.set_ids_are_known();
  return corpus;
}

}  // namespace quintet::data
