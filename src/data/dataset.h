// A corpus cut into training samples. The documents form one stream; sample i predicts tokens first +
// i*seq_len + 1 ... first + (i+1)*seq_len from the tokens before them, so each token is predicted once.
#pragma once

#include <cstdint>
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
  double validation_fraction = 0;  // in [0, 1); taken from the end of the stream
};

// One sequence's row of each buffer, seq_len long; empty spans are not written.
struct SampleView {
  std::span<int32_t> tokens, labels, positions, documents;
};

struct Sample {
  std::vector<int32_t> tokens, labels, positions, documents;
};

class Dataset {
 public:
  // Samples [0, count) starting at token `first_token`. Requires first_token + count*seq_len + 1 tokens in
  // the corpus.
  Dataset(Corpus corpus, int64_t seq_len, bool separate_documents, int64_t first_token, int64_t count);

  int64_t size() const { return count_; }
  int64_t seq_len() const { return seq_len_; }
  const Corpus& corpus() const { return corpus_; }

  void fill(int64_t sample, const SampleView& view) const;  // does not allocate
  Sample get(int64_t sample) const;

  // Labels of a sample that are not ignored; reads no tokens and does not allocate.
  int64_t valid_labels(int64_t sample) const;
  // Whether the label at position `at` of a sample is valid.
  bool has_label(int64_t sample, int64_t at) const;

 private:
  int64_t begin_of(int64_t sample) const;
  Corpus corpus_;
  int64_t seq_len_;
  bool separate_;
  int64_t first_token_, count_;
};

struct Splits {
  Dataset train;
  std::optional<Dataset> validation;  // present when the fraction is above 0
};

// Splits the stream into training samples and, at its end, validation samples: round(fraction * samples), at
// least 1. No token is in both. UserError, with the numbers, when there are too few tokens.
Splits make_splits(const Corpus& corpus, const DatasetOptions& options);

}  // namespace quintet::data
