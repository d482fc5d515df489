// A corpus, or a part of it, cut into samples of seq_len positions. Streaming: the tokens form one stream,
// and sample i predicts tokens i*seq_len + 1 ... (i+1)*seq_len of it from the tokens before them, so each
// token is predicted once. Best fit: samples hold whole documents (best_fit.h), and the positions left over
// are padding. Tokens that the corpus flags as context only (Corpus::trained) are never labels.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "data/best_fit.h"
#include "data/corpus.h"
#include "data/masked_tokens.h"

namespace quintet::data {

inline constexpr int32_t kIgnored = -1;  // label that does not contribute to the loss

struct DatasetOptions {
  int64_t seq_len = 0;
  // True: attention does not cross document boundaries within a sample. A label that belongs to the next
  // document is ignored, positions restart at 0, and documents are numbered 0, 1, 2, ... False: a sample is
  // one document with consecutive positions.
  bool separate_documents = false;
  double validation_fraction = 0;  // in [0, 1); drawn over documents, see make_splits
  // Set: documents are packed whole, by best fit, and separated.
  std::optional<config::LongDocuments> best_fit = {};
};

// Fill-in-the-middle: a document (or the part of it in a sample) is cut at two random places and written as
// prefix, suffix, middle, each after its sentinel, so that the middle is predicted from both sides. Its last
// three tokens make room for the sentinels; the last token of a document stays last. Random numbers belong to
// (key, position in the global order, part), so every layout cuts alike.
struct FillInTheMiddle {
  double rate = 0;                             // share of the parts that are rearranged
  double suffix_first = 0;                     // share of those written suffix, prefix, middle
  int32_t prefix = 0, middle = 0, suffix = 0;  // sentinel tokens
  uint64_t key = 0;
};

// Consecutive positions of a sequence.
struct PositionRange {
  int64_t begin = 0, length = 0;
  friend bool operator==(const PositionRange&, const PositionRange&) = default;
};
// Ascending and disjoint; none: all positions.
using Positions = std::span<const PositionRange>;

// One sequence's row of each buffer, seq_len long; empty spans are not written.
struct SampleView {
  std::span<int32_t> tokens, labels, positions, documents;
};

struct Sample {
  std::vector<int32_t> tokens, labels, positions, documents;
};

// Consecutive tokens of a document in a sample, for reports.
struct SamplePart {
  int64_t document = 0;  // of the corpus
  int64_t begin = 0;     // first token, in the document
  int64_t tokens = 0;    // inputs
};

class Dataset {
 public:
  // Samples [0, count) starting at token `first_token`. Requires first_token + count*seq_len + 1 tokens in
  // the corpus.
  Dataset(Corpus corpus, int64_t seq_len, bool separate_documents, int64_t first_token, int64_t count);
  // All samples of the stream that the ranges form, which are ascending and disjoint. Where one ends, a
  // document ends. Requires at least seq_len + 1 tokens.
  Dataset(Corpus corpus, int64_t seq_len, bool separate_documents, const std::vector<TokenRange>& ranges);

  // Whole documents of the ranges, packed by best fit. Requires one with a label.
  Dataset(Corpus corpus, int64_t seq_len, const std::vector<TokenRange>& ranges,
          config::LongDocuments policy);

  void set_fill_in_the_middle(const FillInTheMiddle& fim) { fim_ = fim; }
  // Labels are then the chosen tokens themselves, not the tokens after them; attention is to both sides.
  void set_masked_tokens(const MaskedTokens& masked) { masked_ = masked; }

  int64_t size() const { return count_; }
  int64_t seq_len() const { return seq_len_; }
  const Corpus& corpus() const { return corpus_; }
  const BestFit* best_fit() const { return packed_.get(); }

  // Does not allocate, but for one buffer per thread with masked tokens. `position` in the global order is
  // what fill-in-the-middle and masked tokens are drawn by. Tokens of the corpus are read for `wanted` only;
  // what the rows of tokens and labels hold elsewhere is not specified.
  void fill(int64_t sample, const SampleView& view, int64_t position = 0, Positions wanted = {}) const;
  Sample get(int64_t sample, int64_t position = 0) const;
  void will_read(int64_t sample, Positions wanted = {}) const;  // see Corpus::will_read

  // Labels of a sample at these positions that are not ignored. Reads no tokens and does not allocate, but
  // with masked tokens, as fill() does.
  int64_t valid_labels(int64_t sample, int64_t position = 0, Positions wanted = {}) const;
  // Positions of a sample that hold a token; the others are padding.
  int64_t inputs(int64_t sample) const;
  // Whether the label at position `at` of a sample is valid.
  bool has_label(int64_t sample, int64_t at, int64_t position = 0) const;
  // Pairs of positions of which the first attends to the second: the cost of a sample's attention.
  int64_t visible_pairs(int64_t sample) const;
  std::vector<SamplePart> parts(int64_t sample) const;
  int64_t first_document(int64_t sample) const;  // of the corpus

  // Whether any label of any sample is valid.
  bool has_labels() const;

 private:
  struct Segment {
    int64_t at = 0, begin = 0;  // first token in the stream, and in the corpus
  };
  // Consecutive positions of a sample that hold consecutive tokens.
  struct Span {
    int64_t begin = 0;       // first token in the corpus; -1: padding
    int64_t inputs = 0;      // positions
    int64_t next = -1;       // the token in the corpus that the last position predicts, or -1
    bool restarts = true;    // positions and attention restart
    bool whole_end = false;  // its last token (label or input) ends a document
  };
  template <class F>
  void each_span(int64_t sample, const F& visit) const;
  template <class F>
  void each_stream_span(int64_t sample, const F& visit) const;
  // Visits at, token, draw of every wanted position of a sample that is not padding.
  template <class F>
  void each_draw(int64_t sample, int64_t position, Positions wanted, const F& visit) const;
  // Of the span whose first position is `start`.
  bool rearrange(const Span& span, int64_t position, uint64_t number, int64_t start, const SampleView& view,
                 Positions wanted) const;
  void read_labels(const Span& span, int64_t first, std::span<int32_t> labels, Positions wanted) const;
  size_t segment_of(int64_t at) const;
  int64_t end_of(size_t segment) const;
  int64_t in_corpus(size_t segment, int64_t at) const;
  bool is_trained(int64_t token) const {
    return corpus_.trained().empty() || corpus_.trained()[static_cast<size_t>(token)] != 0;
  }

  Corpus corpus_;
  int64_t seq_len_;
  bool separate_;
  std::shared_ptr<const std::vector<Segment>> segments_;
  std::shared_ptr<const BestFit> packed_;
  int64_t tokens_, count_;  // of the stream
  FillInTheMiddle fim_;
  MaskedTokens masked_;
};

struct Splits {
  Dataset train;
  std::optional<Dataset> validation;  // present when the fraction is above 0
};

// Splits the corpus into training samples and round(fraction * samples) validation samples, at least 1. No
// token is in both. Validation takes whole documents in the order of a hash of their contents, so that it
// resembles the rest, equal documents fall into the same split, and neither the order of files nor the seed
// matters. Documents longer than an eighth of the validation data are drawn in pieces of about that size; the
// last document is cut to size. With best fit, documents stay whole: validation takes them until it has the
// fraction of the tokens. UserError, with the numbers, when there are too few tokens.
Splits make_splits(const Corpus& corpus, const DatasetOptions& options);

}  // namespace quintet::data
