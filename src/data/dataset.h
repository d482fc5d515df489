// A corpus cut into training samples. The documents lie end to end as one stream; sample i predicts tokens
// first + i*seq_len + 1 ... first + (i+1)*seq_len from those before them, so each token is predicted once.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "data/corpus.h"

namespace quintet::data {

inline constexpr int32_t kIgnored = -1;  // the label that counts for nothing

struct DatasetOptions {
  int64_t seq_len = 0;
  // True: documents in one sample do not see each other. A label that would cross into the next document is
  // ignored, positions begin again at 0 and documents count 0, 1, 2, ... False: a sample is one document of
  // consecutive positions.
  bool separate_documents = false;
  double validation_fraction = 0;  // in [0, 1); the samples at the end of the stream
};

// One sequence's row of each buffer, seq_len long; an empty span is not wanted and not written.
struct SampleView {
  std::span<int32_t> tokens, labels, positions, documents;
};

struct Sample {
  std::vector<int32_t> tokens, labels, positions, documents;
};

class Dataset {
 public:
  // Samples [0, count) beginning at token `first_token`. The corpus must hold first_token + count*seq_len + 1
  // tokens.
  Dataset(Corpus corpus, int64_t seq_len, bool separate_documents, int64_t first_token, int64_t count);

  int64_t size() const { return count_; }
  int64_t seq_len() const { return seq_len_; }
  const Corpus& corpus() const { return corpus_; }

  void fill(int64_t sample, const SampleView& view) const;  // does not allocate
  Sample get(int64_t sample) const;

  // The number of labels of a sample that are not ignored; reads no tokens and does not allocate.
  int64_t valid_labels(int64_t sample) const;
  // Whether the label at one place of a sample counts.
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

// Cuts the stream into training samples and, at its end, validation samples: round(fraction * samples), at
// least 1. No token is in both. Too few tokens for what is asked is a UserError with the numbers.
Splits make_splits(const Corpus& corpus, const DatasetOptions& options);

}  // namespace quintet::data
