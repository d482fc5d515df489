#include "data/dataset.h"

#include <algorithm>
#include <cmath>

#include "base/checksum.h"
#include "base/error.h"
#include "base/text.h"

namespace quintet::data {

namespace {

constexpr int64_t kPieces = 8;          // of the validation data, at least
constexpr int64_t kHashedBytes = 2048;  // at either end of a piece

// A document, or a piece of a long one, with the hash that decides its split.
struct Piece {
  uint64_t hash = 0;
  TokenRange range;
};

uint64_t hash_of_range(const Corpus& corpus, const TokenRange& range) {
  const auto width = static_cast<size_t>(corpus.width());
  const auto bytes = corpus.bytes().subspan(static_cast<size_t>(range.begin) * width,
                                            static_cast<size_t>(range.length) * width);
  base::Checksum sum;
  sum.add(bytes.first(std::min<size_t>(bytes.size(), kHashedBytes)));
  sum.add(bytes.last(std::min<size_t>(bytes.size(), kHashedBytes)));
  sum.add(std::as_bytes(std::span(&range.length, 1)));
  return sum.value();
}

std::vector<Piece> pieces_of(const Corpus& corpus, int64_t longest) {
  std::vector<Piece> pieces;
  const auto offsets = corpus.offsets();
  for (size_t d = 0; d + 1 < offsets.size(); ++d) {
    const auto begin = static_cast<int64_t>(offsets[d]), end = static_cast<int64_t>(offsets[d + 1]);
    const int64_t parts = (end - begin + longest - 1) / longest;
    for (int64_t i = 0; i < parts; ++i) {
      const int64_t from = begin + (end - begin) * i / parts, to = begin + (end - begin) * (i + 1) / parts;
      pieces.push_back({0, {from, to - from}});
      pieces.back().hash = hash_of_range(corpus, pieces.back().range);
    }
  }
  return pieces;
}

// `tokens` tokens of the corpus, as ascending ranges.
std::vector<TokenRange> draw(const Corpus& corpus, int64_t tokens, int64_t seq_len) {
  std::vector<Piece> pieces = pieces_of(corpus, std::max(seq_len + 1, tokens / kPieces));
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return a.hash != b.hash ? a.hash < b.hash : a.range.begin < b.range.begin;
  });
  std::vector<TokenRange> drawn;
  for (const Piece& piece : pieces) {
    if (tokens == 0) break;
    drawn.push_back({piece.range.begin, std::min(piece.range.length, tokens)});
    tokens -= drawn.back().length;
  }
  std::sort(drawn.begin(), drawn.end(),
            [](const TokenRange& a, const TokenRange& b) { return a.begin < b.begin; });
  return drawn;
}

std::vector<TokenRange> complement(const std::vector<TokenRange>& drawn, int64_t tokens) {
  std::vector<TokenRange> rest;
  int64_t at = 0;
  for (const TokenRange& range : drawn) {
    if (range.begin > at) rest.push_back({at, range.begin - at});
    at = range.begin + range.length;
  }
  if (at < tokens) rest.push_back({at, tokens - at});
  return rest;
}

}  // namespace

Dataset::Dataset(Corpus corpus, int64_t seq_len, bool separate_documents, int64_t first_token, int64_t count)
    : corpus_(std::move(corpus)),
      seq_len_(seq_len),
      separate_(separate_documents),
      segments_(std::make_shared<std::vector<Segment>>(1, Segment{0, first_token})),
      tokens_(corpus_.tokens() - first_token),
      count_(count) {
  QUINTET_CHECK(seq_len_ > 0 && first_token >= 0 && count_ > 0,
                "invalid dataset: {} samples of {} from token {}", count_, seq_len_, first_token);
  QUINTET_CHECK((tokens_ - 1) / seq_len_ >= count_, "{} samples of {} from token {} exceed {} tokens", count_,
                seq_len_, first_token, corpus_.tokens());
}

Dataset::Dataset(Corpus corpus, int64_t seq_len, bool separate_documents,
                 const std::vector<TokenRange>& ranges)
    : corpus_(std::move(corpus)), seq_len_(seq_len), separate_(separate_documents) {
  std::vector<Segment> segments;
  tokens_ = 0;
  for (const TokenRange& range : ranges) {
    QUINTET_CHECK(range.length > 0 && range.begin + range.length <= corpus_.tokens(),
                  "{} tokens from {} of {}", range.length, range.begin, corpus_.tokens());
    segments.push_back({tokens_, range.begin});
    tokens_ += range.length;
  }
  segments_ = std::make_shared<std::vector<Segment>>(std::move(segments));
  count_ = (tokens_ - 1) / seq_len_;
  QUINTET_CHECK(count_ > 0, "{} tokens are too few for a sample of {}", tokens_, seq_len_);
}

int64_t Dataset::begin_of(int64_t sample) const {
  QUINTET_CHECK(sample >= 0 && sample < count_, "sample {} is not below {}", sample, count_);
  return sample * seq_len_;
}

size_t Dataset::segment_of(int64_t at) const {
  const auto next = std::upper_bound(segments_->begin(), segments_->end(), at,
                                     [](int64_t t, const Segment& s) { return t < s.at; });
  return static_cast<size_t>(next - segments_->begin()) - 1;
}

int64_t Dataset::end_of(size_t segment) const {
  return segment + 1 < segments_->size() ? (*segments_)[segment + 1].at : tokens_;
}

int64_t Dataset::in_corpus(size_t segment, int64_t at) const {
  const Segment& s = (*segments_)[segment];
  return s.begin + (at - s.at);
}

int64_t Dataset::end_of_document(int64_t at) const {
  const size_t segment = segment_of(at);
  const int64_t token = in_corpus(segment, at);
  const auto document = static_cast<size_t>(corpus_.document_of(token));
  return std::min(end_of(segment), at + static_cast<int64_t>(corpus_.offsets()[document + 1]) - token);
}

void Dataset::read(int64_t at, std::span<int32_t> out) const {
  for (size_t segment = segment_of(at); !out.empty(); ++segment) {
    const auto n =
        static_cast<size_t>(std::min<int64_t>(static_cast<int64_t>(out.size()), end_of(segment) - at));
    corpus_.read(in_corpus(segment, at), out.first(n));
    out = out.subspan(n);
    at += static_cast<int64_t>(n);
  }
}

void Dataset::ignore_untrained(int64_t at, std::span<int32_t> labels) const {
  const auto trained = corpus_.trained();
  if (trained.empty()) return;
  for (size_t segment = segment_of(at); !labels.empty(); ++segment) {
    const auto n =
        static_cast<size_t>(std::min<int64_t>(static_cast<int64_t>(labels.size()), end_of(segment) - at));
    const auto flags = trained.subspan(static_cast<size_t>(in_corpus(segment, at)), n);
    for (size_t i = 0; i < n; ++i)
      if (flags[i] == 0) labels[i] = kIgnored;
    labels = labels.subspan(n);
    at += static_cast<int64_t>(n);
  }
}

void Dataset::fill(int64_t sample, const SampleView& view) const {
  const int64_t begin = begin_of(sample);
  const auto length = static_cast<size_t>(seq_len_);
  for (const auto& span : {view.tokens, view.labels, view.positions, view.documents})
    QUINTET_CHECK(span.empty() || span.size() == length, "a row of {} elements for a sequence of {}",
                  span.size(), length);
  if (!view.tokens.empty()) read(begin, view.tokens);
  if (!view.labels.empty()) {
    read(begin + 1, view.labels);
    ignore_untrained(begin + 1, view.labels);
  }

  // Past the sample's end when documents are not separated.
  int64_t next = separate_ ? end_of_document(begin) : tokens_;
  int32_t position = 0, document = 0;
  for (size_t i = 0; i < length; ++i) {
    const int64_t at = begin + static_cast<int64_t>(i);
    if (separate_ && next == at) next = end_of_document(at), ++document, position = 0;
    if (!view.positions.empty()) view.positions[i] = position;
    if (!view.documents.empty()) view.documents[i] = document;
    if (separate_ && !view.labels.empty() && next == at + 1) view.labels[i] = kIgnored;
    ++position;
  }
}

Sample Dataset::get(int64_t sample) const {
  const auto length = static_cast<size_t>(seq_len_);
  Sample out = {std::vector<int32_t>(length), std::vector<int32_t>(length), std::vector<int32_t>(length),
                std::vector<int32_t>(length)};
  fill(sample, {out.tokens, out.labels, out.positions, out.documents});
  return out;
}

int64_t Dataset::valid_labels(int64_t sample) const {
  const int64_t begin = begin_of(sample), last = begin + seq_len_;
  const auto trained = corpus_.trained();
  if (!separate_ && trained.empty()) return seq_len_;
  const auto is_trained = [&](int64_t token) {
    return trained.empty() || trained[static_cast<size_t>(token)] != 0;
  };
  int64_t valid = 0;
  // Per range of the corpus: the predicted tokens that are trained, less those that begin a document.
  for (int64_t at = begin + 1; at <= last;) {
    const size_t segment = segment_of(at);
    const int64_t from = in_corpus(segment, at), n = std::min(end_of(segment), last + 1) - at;
    const auto flags =
        trained.empty() ? trained : trained.subspan(static_cast<size_t>(from), static_cast<size_t>(n));
    valid += trained.empty() ? n : n - std::ranges::count(flags, uint8_t{0});
    if (separate_) {
      const auto offsets = corpus_.offsets();
      const bool range_begins = at == (*segments_)[segment].at;
      if (range_begins) valid -= is_trained(from);
      const auto first =
          std::lower_bound(offsets.begin(), offsets.end(), static_cast<uint64_t>(from) + range_begins);
      for (auto start = first; *start < static_cast<uint64_t>(from + n); ++start)
        valid -= is_trained(static_cast<int64_t>(*start));
    }
    at += n;
  }
  return valid;
}

bool Dataset::has_label(int64_t sample, int64_t at) const {
  QUINTET_CHECK(at >= 0 && at < seq_len_, "position {} is not below {}", at, seq_len_);
  const int64_t token = begin_of(sample) + at;
  if (separate_ && end_of_document(token) == token + 1) return false;
  const auto trained = corpus_.trained();
  return trained.empty() || trained[static_cast<size_t>(in_corpus(segment_of(token + 1), token + 1))] != 0;
}

bool Dataset::has_labels() const {
  for (int64_t sample = 0; sample < count_; ++sample)
    if (valid_labels(sample) > 0) return true;
  return false;
}

Splits make_splits(const Corpus& corpus, const DatasetOptions& options) {
  const auto [seq_len, separate, fraction] = options;
  if (seq_len <= 0) base::fail_user("seq_len is {}; it must be at least 1", seq_len);
  if (!(fraction >= 0 && fraction < 1))
    base::fail_user("the validation fraction is {}; it must be at least 0 and below 1", fraction);
  const int64_t tokens = corpus.tokens();
  if (tokens - 1 < seq_len) {
    const std::string remedy =
        tokens > 1 ? fmt::format("use seq_len {} or less, or more data", tokens - 1) : "use more data";
    base::fail_user("seq_len {} needs {} tokens for one sample, but '{}' has {}: {}",
                    base::thousands(seq_len), base::thousands(seq_len + 1), corpus.name(),
                    base::thousands(tokens), remedy);
  }
  if (fraction == 0) return {Dataset(corpus, seq_len, separate, 0, (tokens - 1) / seq_len), std::nullopt};

  // Each split ends with a label that is not one of its inputs, so together they need two tokens more than
  // their inputs.
  const int64_t samples = (tokens - 2) / seq_len;
  if (samples < 2)
    base::fail_user(
        "a validation split needs one sample for training and one for validation, {} tokens at seq_len {}, "
        "but '{}' has {}: use seq_len {} or less, a validation fraction of 0, or more data",
        base::thousands(2 * seq_len + 2), base::thousands(seq_len), corpus.name(), base::thousands(tokens),
        base::thousands(std::max<int64_t>(1, (tokens - 2) / 2)));
  const int64_t validation =
      std::clamp<int64_t>(std::llround(fraction * static_cast<double>(samples)), 1, samples - 1);
  const std::vector<TokenRange> drawn = draw(corpus, validation * seq_len + 1, seq_len);
  return {Dataset(corpus, seq_len, separate, complement(drawn, tokens)),
          Dataset(corpus, seq_len, separate, drawn)};
}

}  // namespace quintet::data
