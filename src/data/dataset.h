// A corpus, or a part of it, cut into samples. The tokens form one stream; sample i predicts tokens i*seq_len
// + 1 ... (i+1)*seq_len of it from the tokens before them, so each token is predicted once, unless the corpus
// flags it as context only (Corpus::trained).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "data/corpus.h"

namespace quintet::data {

inline constexpr int32_t kIgnored = -1;  // label that does not contribute to the loss

struct DatasetOptions {
  int64_t seq_len = 0;
  // True: attention does not cross document boundaries within a sample. A label that belongs to the next
  // document is ignored, positions restart at 0, and documents are numbered 0, 1, 2, ... False: a sample is
  // one document with consecutive positions.
  bool separate_documents = false;
  double validation_fraction = 0;  // in [0, 1); drawn over documents, see make_splits
};

// One sequence's row of each buffer, seq_len long; empty spans are not written.
struct SampleView {
  std::span<int32_t> tokens, labels, positions, documents;
};

struct Sample {
  std::vector<int32_t> tokens, labels, positions, documents;
};

// Tokens [begin, begin + length) of a corpus.
struct TokenRange {
  int64_t begin = 0, length = 0;
};

class Dataset {
 public:
  // Samples [0, count) starting at token `first_token`. Requires first_token + count*seq_len + 1 tokens in
  // the corpus.
  Dataset(Corpus corpus, int64_t seq_len, bool separate_documents, int64_t first_token, int64_t count);
  // All samples of the stream that the ranges form, which are ascending and disjoint. Where one ends, a
  // document ends. Requires at least seq_len + 1 tokens.
  Dataset(Corpus corpus, int64_t seq_len, bool separate_documents, const std::vector<TokenRange>& ranges);

  int64_t size() const { return count_; }
  int64_t seq_len() const { return seq_len_; }
  const Corpus& corpus() const { return corpus_; }

  void fill(int64_t sample, const SampleView& view) const;  // does not allocate
  Sample get(int64_t sample) const;

  // Labels of a sample that are not ignored; reads no tokens and does not allocate.
  int64_t valid_labels(int64_t sample) const;
  // Whether the label at position `at` of a sample is valid.
  bool has_label(int64_t sample, int64_t at) const;

  // Whether any label of any sample is valid.
  bool has_labels() const;

 private:
  struct Segment {
    int64_t at = 0, begin = 0;  // first token in the stream, and in the corpus
  };
  int64_t begin_of(int64_t sample) const;
  size_t segment_of(int64_t at) const;
  int64_t end_of(size_t segment) const;
  int64_t in_corpus(size_t segment, int64_t at) const;
  // The stream position after the last token of the document, or the range, that contains token `at`.
  int64_t end_of_document(int64_t at) const;
  void read(int64_t at, std::span<int32_t> out) const;
  // Removes the labels of tokens that are not trained; labels[0] is token `at` of the stream.
  void ignore_untrained(int64_t at, std::span<int32_t> labels) const;

  Corpus corpus_;
  int64_t seq_len_;
  bool separate_;
  std::shared_ptr<const std::vector<Segment>> segments_;
  int64_t tokens_, count_;  // of the stream
};

struct Splits {
  Dataset train;
  std::optional<Dataset> validation;  // present when the fraction is above 0
};

// Splits the corpus into training samples and round(fraction * samples) validation samples, at least 1. No
// token is in both. Validation takes whole documents in the order of a hash of their contents, so that it
// resembles the rest, equal documents fall into the same split, and neither the order of files nor the seed
// matters. Documents longer than an eighth of the validation data are drawn in pieces of about that size; the
// last document is cut to size. UserError, with the numbers, when there are too few tokens.
Splits make_splits(const Corpus& corpus, const DatasetOptions& options);

}  // namespace quintet::data
