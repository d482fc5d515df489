#include "data/dataset.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include "base/checksum.h"
#include "base/error.h"
#include "base/parallel_for.h"
#include "base/philox.h"
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
  const auto bytes = corpus.bytes_of(range.begin, range.length);
  base::Checksum sum;
  sum.add(bytes.first(std::min<size_t>(bytes.size(), kHashedBytes)));
  sum.add(bytes.last(std::min<size_t>(bytes.size(), kHashedBytes)));
  sum.add(std::as_bytes(std::span(&range.length, 1)));
  return sum.value();
}

// Calls use(from, to) for the wanted parts of positions [begin, end).
template <class F>
void each_wanted(Positions wanted, int64_t begin, int64_t end, const F& use) {
  if (wanted.empty()) return use(begin, end);
  for (const PositionRange& range : wanted) {
    const int64_t from = std::max(begin, range.begin), to = std::min(end, range.begin + range.length);
    if (from < to) use(from, to);
  }
}

std::span<int32_t> part(std::span<int32_t> row, int64_t from, int64_t to) {
  return row.subspan(static_cast<size_t>(from), static_cast<size_t>(to - from));
}

bool before(const Piece& a, const Piece& b) {
  return a.hash != b.hash ? a.hash < b.hash : a.range.begin < b.range.begin;
}

// Of all pieces that are added, those that come first by their hashes and have `tokens` tokens together;
// all if they have fewer. Holds no others.
class FirstPieces {
 public:
  explicit FirstPieces(int64_t tokens) : wanted_(tokens) {}
  void add(const Piece& piece) {
    held_.push_back(piece);
    std::ranges::push_heap(held_, before);
    tokens_ += piece.range.length;
    while (held_.size() > 1 && tokens_ - held_.front().range.length >= wanted_) {
      tokens_ -= held_.front().range.length;
      std::ranges::pop_heap(held_, before);
      held_.pop_back();
    }
  }
  std::vector<Piece> take() {
    std::ranges::sort(held_, before);
    return std::move(held_);
  }

 private:
  int64_t wanted_, tokens_ = 0;
  std::vector<Piece> held_;  // a heap, the last piece first
};

// The first pieces by hash of the corpus, whose documents are cut where they are longer than `longest`: see
// FirstPieces. Several threads hash.
std::vector<Piece> first_pieces(const Corpus& corpus, int64_t longest, int64_t tokens) {
  constexpr size_t kBlock = size_t{1} << 16, kShare = size_t{1} << 10;  // documents
  const int threads = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 16);
  const auto offsets = corpus.offsets();
  FirstPieces first(tokens);
  std::vector<Piece> pieces;
  for (size_t begin = 0; begin + 1 < offsets.size(); begin += kBlock) {
    pieces.clear();
    for (size_t d = begin; d < std::min(begin + kBlock, offsets.size() - 1); ++d) {
      const auto at = static_cast<int64_t>(offsets[d]), length = static_cast<int64_t>(offsets[d + 1]) - at;
      const int64_t parts = (length + longest - 1) / longest;
      for (int64_t i = 0; i < parts; ++i) {
        const int64_t from = length * i / parts, to = length * (i + 1) / parts;
        pieces.push_back({0, {at + from, to - from}});
      }
    }
    base::parallel_for(threads, (pieces.size() + kShare - 1) / kShare, [&](size_t share) {
      for (size_t i = share * kShare; i < std::min(pieces.size(), (share + 1) * kShare); ++i)
        pieces[i].hash = hash_of_range(corpus, pieces[i].range);
    });
    for (const Piece& piece : pieces) first.add(piece);
  }
  return first.take();
}

// `tokens` tokens of the corpus, as ascending ranges.
std::vector<TokenRange> draw(const Corpus& corpus, int64_t tokens, int64_t seq_len) {
  std::vector<TokenRange> drawn;
  for (const Piece& piece : first_pieces(corpus, std::max(seq_len + 1, tokens / kPieces), tokens)) {
    if (tokens == 0) break;
    drawn.push_back({piece.range.begin, std::min(piece.range.length, tokens)});
    tokens -= drawn.back().length;
  }
  std::sort(drawn.begin(), drawn.end(),
            [](const TokenRange& a, const TokenRange& b) { return a.begin < b.begin; });
  return drawn;
}

// Whole documents until there are `tokens` of them, but not all.
std::vector<TokenRange> draw_documents(const Corpus& corpus, int64_t tokens) {
  std::vector<Piece> pieces = first_pieces(corpus, std::numeric_limits<int64_t>::max() / 2, tokens);
  if (static_cast<int64_t>(pieces.size()) == corpus.documents()) pieces.pop_back();
  std::vector<TokenRange> drawn;
  for (const Piece& piece : pieces) {
    if (tokens <= 0) break;
    drawn.push_back(piece.range);
    tokens -= piece.range.length;
  }
  std::ranges::sort(drawn, {}, &TokenRange::begin);
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

Dataset::Dataset(Corpus corpus, int64_t seq_len, const std::vector<TokenRange>& ranges,
                 config::LongDocuments policy)
    : corpus_(std::move(corpus)),
      seq_len_(seq_len),
      separate_(true),
      packed_(std::make_shared<BestFit>(corpus_, ranges, seq_len, policy)),
      tokens_(0),
      count_(packed_->size()) {
  QUINTET_CHECK(count_ > 0, "no document has a label");
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

template <class F>
void Dataset::each_stream_span(int64_t sample, const F& visit) const {
  int64_t at = sample * seq_len_;
  const int64_t last = at + seq_len_;
  size_t segment = segment_of(at);
  if (!separate_) {
    for (bool first = true; at < last; first = false) {
      const int64_t end = std::min(end_of(segment), last);
      const size_t after = end < end_of(segment) ? segment : segment + 1;
      visit(Span{in_corpus(segment, at), end - at, in_corpus(after, end), first});
      at = end;
      segment = after;
    }
    return;
  }
  const auto offsets = corpus_.offsets();
  int64_t token = in_corpus(segment, at), document = corpus_.document_of(token);
  while (true) {
    const int64_t document_end = static_cast<int64_t>(offsets[static_cast<size_t>(document) + 1]);
    const int64_t stop = std::min(end_of(segment), at + document_end - token), end = std::min(stop, last);
    visit(Span{token, end - at, end < stop ? in_corpus(segment, end) : -1, true,
               token + (end - at) + (end < stop) == document_end});
    if (end == last) return;
    if (end == end_of(segment)) {
      token = in_corpus(++segment, end);
      document = corpus_.document_of(token);
    } else {
      token = document_end;
      ++document;
    }
    at = end;
  }
}

template <class F>
void Dataset::each_span(int64_t sample, const F& visit) const {
  QUINTET_CHECK(sample >= 0 && sample < count_, "sample {} is not below {}", sample, count_);
  if (!packed_) return each_stream_span(sample, visit);
  int64_t left = seq_len_;
  for (int64_t i = 0; i < packed_->pieces(sample); ++i) {
    const BestFit::Piece piece = packed_->piece(sample, i);
    const int64_t next = piece.begin + piece.inputs;
    const auto end = static_cast<size_t>(corpus_.document_of(next)) + 1;
    visit(Span{piece.begin, piece.inputs, next, true,
               next + 1 == static_cast<int64_t>(corpus_.offsets()[end])});
    left -= piece.inputs;
  }
  if (left > 0) visit(Span{-1, left});
}

template <class F>
void Dataset::each_draw(int64_t sample, int64_t position, Positions wanted, const F& visit) const {
  thread_local std::vector<int32_t> tokens;
  tokens.resize(static_cast<size_t>(seq_len_));
  int64_t at = 0;
  each_span(sample, [&](const Span& span) {
    if (span.begin >= 0)
      each_wanted(wanted, at, at + span.inputs, [&](int64_t from, int64_t to) {
        corpus_.read(span.begin + from - at, part(tokens, from, to));
        for (int64_t i = from; i < to; ++i) {
          const int32_t token = tokens[static_cast<size_t>(i)];
          visit(static_cast<size_t>(i), token, masked_.draw(token, position, i));
        }
      });
    at += span.inputs;
  });
}

// Writes the rearranged tokens s[0 .. n) of a span, whose input i is s[i] and whose label i is s[i + 1].
bool Dataset::rearrange(const Span& span, int64_t position, uint64_t number, int64_t start,
                        const SampleView& view, Positions wanted) const {
  const auto words = base::philox(fim_.key, static_cast<uint64_t>(position), number);
  const auto uniform = [](uint32_t word) { return static_cast<double>(word) * 0x1p-32; };
  if (span.begin < 0 || !(uniform(words[0]) < fim_.rate)) return false;
  constexpr int64_t kSentinels = 3, kLeast = 2 * kSentinels;  // shorter parts stay as they are
  const int64_t length = span.inputs + (span.next >= 0), kept = span.whole_end ? 1 : 0;
  if (length < kLeast) return false;
  const int64_t content = length - kSentinels - kept;
  const auto more = base::philox(fim_.key, static_cast<uint64_t>(position), number | uint64_t{1} << 32);
  int64_t low = static_cast<int64_t>(uniform(more[0]) * static_cast<double>(content + 1)),
          high = static_cast<int64_t>(uniform(more[1]) * static_cast<double>(content + 1));
  if (low > high) std::swap(low, high);

  const auto of_span = [&](std::span<int32_t> row) {
    return row.empty() ? row : part(row, start, start + span.inputs);
  };
  const std::span<int32_t> tokens = of_span(view.tokens), labels = of_span(view.labels);
  int64_t at = 0;
  const auto put = [&](int64_t begin, int64_t count) {
    const auto clipped = [&](std::span<int32_t> row, int64_t first) {
      // Row element i is s[i + first].
      const int64_t low_end = std::max<int64_t>(at - first, 0),
                    high_end = std::min<int64_t>(at + count - first, static_cast<int64_t>(row.size()));
      if (low_end >= high_end) return;
      each_wanted(wanted, start + low_end, start + high_end, [&](int64_t from, int64_t to) {
        corpus_.read(begin + (from - start) - (at - first), part(row, from - start, to - start));
      });
    };
    clipped(tokens, 0);
    clipped(labels, 1);
    at += count;
  };
  const auto put_sentinel = [&](int32_t id) {
    if (at < static_cast<int64_t>(tokens.size())) tokens[static_cast<size_t>(at)] = id;
    if (at > 0 && at <= static_cast<int64_t>(labels.size())) labels[static_cast<size_t>(at - 1)] = id;
    ++at;
  };
  const auto prefix = [&] { put(span.begin, low); };
  put_sentinel(fim_.prefix);
  if (uniform(words[1]) < fim_.suffix_first) {
    put_sentinel(fim_.suffix);
    put(span.begin + high, content - high);
    put_sentinel(fim_.middle);
    prefix();
  } else {
    prefix();
    put_sentinel(fim_.suffix);
    put(span.begin + high, content - high);
    put_sentinel(fim_.middle);
  }
  put(span.begin + low, high - low);
  put(span.begin + length - 1, kept);
  if (span.next < 0 && !labels.empty()) labels.back() = kIgnored;
  return true;
}

void Dataset::read_labels(const Span& span, int64_t first, std::span<int32_t> labels,
                          Positions wanted) const {
  const int64_t last = first + span.inputs - 1;
  each_wanted(wanted, first, last + 1, [&](int64_t from, int64_t to) {
    const int64_t inner = std::min(to, last), token = span.begin + from - first + 1;
    corpus_.read(token, part(labels, from, inner));
    if (to > last) {
      labels[static_cast<size_t>(last)] = kIgnored;
      if (span.next >= 0) corpus_.read(span.next, part(labels, last, last + 1));
    }
    if (corpus_.trained().empty()) return;
    for (int64_t i = from; i < to; ++i) {
      int32_t& label = labels[static_cast<size_t>(i)];
      if (label != kIgnored && !is_trained(i < last ? token + i - from : span.next)) label = kIgnored;
    }
  });
}

void Dataset::fill(int64_t sample, const SampleView& view, int64_t position, Positions wanted) const {
  for (const auto& span : {view.tokens, view.labels, view.positions, view.documents})
    QUINTET_CHECK(span.empty() || span.size() == static_cast<size_t>(seq_len_),
                  "a row of {} elements for a sequence of {}", span.size(), seq_len_);
  size_t at = 0;
  int32_t within = 0, document = -1;
  uint64_t number = 0;
  each_span(sample, [&](const Span& span) {
    const auto n = static_cast<size_t>(span.inputs);
    const auto first = static_cast<int64_t>(at);
    const auto of = [&](std::span<int32_t> row) { return row.empty() ? row : row.subspan(at, n); };
    if (span.restarts) ++document, within = 0;
    if (fim_.rate > 0 && rearrange(span, position, number++, first, view, wanted)) {
    } else if (span.begin < 0) {
      std::ranges::fill(of(view.tokens), 0);
      std::ranges::fill(of(view.labels), kIgnored);
    } else {
      if (!view.tokens.empty())
        each_wanted(wanted, first, first + span.inputs, [&](int64_t from, int64_t to) {
          corpus_.read(span.begin + from - first, part(view.tokens, from, to));
        });
      if (!view.labels.empty()) read_labels(span, first, view.labels, wanted);
    }
    if (const auto row = of(view.documents); !row.empty()) std::ranges::fill(row, document);
    if (const auto row = of(view.positions); !row.empty())
      for (size_t i = 0; i < n; ++i) row[i] = within + static_cast<int32_t>(i);
    within += static_cast<int32_t>(n);
    at += n;
  });
  if (!masked_.is_on() || (view.tokens.empty() && view.labels.empty())) return;
  std::ranges::fill(view.labels, kIgnored);
  each_draw(sample, position, wanted, [&](size_t i, int32_t token, const MaskedTokens::Draw& draw) {
    if (!view.tokens.empty()) view.tokens[i] = draw.input;
    if (!view.labels.empty() && draw.chosen) view.labels[i] = token;
  });
}

void Dataset::will_read(int64_t sample, Positions wanted) const {
  int64_t at = 0;
  each_span(sample, [&](const Span& span) {
    if (span.begin >= 0)
      each_wanted(wanted, at, at + span.inputs,
                  [&](int64_t from, int64_t to) { corpus_.will_read(span.begin + from - at, to - from); });
    at += span.inputs;
  });
}

Sample Dataset::get(int64_t sample, int64_t position) const {
  const auto length = static_cast<size_t>(seq_len_);
  Sample out = {std::vector<int32_t>(length), std::vector<int32_t>(length), std::vector<int32_t>(length),
                std::vector<int32_t>(length)};
  fill(sample, {out.tokens, out.labels, out.positions, out.documents}, position);
  return out;
}

int64_t Dataset::valid_labels(int64_t sample, int64_t position, Positions wanted) const {
  const auto trained = corpus_.trained();
  int64_t valid = 0, at = 0;
  if (masked_.is_on()) {
    each_draw(sample, position, wanted, [&](size_t, int32_t, const auto& draw) { valid += draw.chosen; });
    return valid;
  }
  each_span(sample, [&](const Span& span) {
    const int64_t last = at + span.inputs - 1;
    if (span.begin >= 0)
      each_wanted(wanted, at, last + 1, [&](int64_t from, int64_t to) {
        const int64_t inner = std::min(to, last) - from;
        valid += inner;
        if (!trained.empty())
          valid -= std::ranges::count(
              trained.subspan(static_cast<size_t>(span.begin + from - at + 1), static_cast<size_t>(inner)),
              uint8_t{0});
        if (to > last) valid += span.next >= 0 && is_trained(span.next);
      });
    at += span.inputs;
  });
  return valid;
}

int64_t Dataset::inputs(int64_t sample) const {
  int64_t n = 0;
  each_span(sample, [&](const Span& span) { n += span.begin >= 0 ? span.inputs : 0; });
  return n;
}

bool Dataset::has_label(int64_t sample, int64_t at, int64_t position) const {
  QUINTET_CHECK(at >= 0 && at < seq_len_, "position {} is not below {}", at, seq_len_);
  bool has = false;
  if (masked_.is_on()) {
    const PositionRange only{at, 1};
    each_draw(sample, position, std::span(&only, 1),
              [&](size_t, int32_t, const auto& draw) { has = draw.chosen; });
    return has;
  }
  each_span(sample, [&](const Span& span) {
    if (at >= 0 && at < span.inputs && span.begin >= 0) {
      const int64_t label = at + 1 < span.inputs ? span.begin + at + 1 : span.next;
      has = label >= 0 && is_trained(label);
    }
    at -= span.inputs;
  });
  return has;
}

int64_t Dataset::visible_pairs(int64_t sample) const {
  int64_t pairs = 0, length = 0;
  const auto close = [&] {
    pairs += masked_.is_on() ? length * length : length * (length + 1) / 2;
    length = 0;
  };
  each_span(sample, [&](const Span& span) {
    if (span.restarts) close();
    length += span.inputs;
  });
  close();
  return pairs;
}

int64_t Dataset::first_document(int64_t sample) const {
  int64_t token = -1;
  each_span(sample, [&](const Span& span) {
    if (token < 0) token = span.begin;
  });
  return corpus_.document_of(token);
}

std::vector<SamplePart> Dataset::parts(int64_t sample) const {
  std::vector<SamplePart> parts;
  each_span(sample, [&](const Span& span) {
    if (span.begin < 0) return;
    const auto offsets = corpus_.offsets();
    const int64_t last = span.begin + span.inputs;
    for (int64_t at = span.begin, d = corpus_.document_of(at); at < last; ++d) {
      const auto begin = static_cast<int64_t>(offsets[static_cast<size_t>(d)]);
      const int64_t end = std::min(last, static_cast<int64_t>(offsets[static_cast<size_t>(d) + 1]));
      parts.push_back({d, at - begin, end - at});
      at = end;
    }
  });
  return parts;
}

bool Dataset::has_labels() const {
  bool may = false;
  for (int64_t sample = 0; masked_.is_on() && sample < count_ && !may; ++sample)
    each_draw(sample, 0, {},
              [&](size_t, int32_t token, const auto&) { may = may || masked_.may_choose(token); });
  if (masked_.is_on()) return may;
  for (int64_t sample = 0; sample < count_; ++sample)
    if (valid_labels(sample) > 0) return true;
  return false;
}

namespace {

Splits packed_splits(const Corpus& corpus, const DatasetOptions& options) {
  const auto made = [&](const std::vector<TokenRange>& ranges) {
    const BestFit plan(corpus, ranges, options.seq_len, *options.best_fit);
    if (plan.size() == 0)
      base::fail_user(
          "'{}': no document can be packed into sequences of {} tokens: {} are longer and dropped, {} lose "
          "all of their trained tokens when they are truncated, {} have no trained token, and one of a "
          "single token has no label",
          corpus.name(), base::thousands(options.seq_len), base::thousands(plan.dropped()),
          base::thousands(plan.lost()), base::thousands(plan.untrained() - plan.lost()));
    return Dataset(corpus, options.seq_len, ranges, *options.best_fit);
  };
  if (options.validation_fraction == 0) return {made({{0, corpus.tokens()}}), std::nullopt};
  if (corpus.documents() < 2)
    base::fail_user(
        "a validation split of whole documents needs at least 2, but '{}' has {}: use a validation fraction "
        "of 0 or more data",
        corpus.name(), corpus.documents());
  const auto wanted = std::llround(options.validation_fraction * static_cast<double>(corpus.tokens()));
  const std::vector<TokenRange> drawn = draw_documents(corpus, std::max<int64_t>(1, wanted));
  return {made(complement(drawn, corpus.tokens())), made(drawn)};
}

}  // namespace

Splits make_splits(const Corpus& corpus, const DatasetOptions& options) {
  const auto [seq_len, separate, fraction, best_fit] = options;
  if (seq_len <= 0) base::fail_user("seq_len is {}; it must be at least 1", seq_len);
  if (!(fraction >= 0 && fraction < 1))
    base::fail_user("the validation fraction is {}; it must be at least 0 and below 1", fraction);
  const int64_t tokens = corpus.tokens();
  if (best_fit) return packed_splits(corpus, options);
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
