// Best-fit packing: documents are laid into sequences without being cut, so that few positions stay empty. A
// pure function of the document lengths; documents longer than a sequence follow a policy.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "config/recipe.h"
#include "data/corpus.h"

namespace quintet::data {

// Tokens [begin, begin + length) of a corpus.
struct TokenRange {
  int64_t begin = 0, length = 0;
};

// A document of n tokens predicts n - 1 of them, and takes that many positions: the last token is only a
// label. One with more than seq_len labels is split into consecutive parts, each label once, where a part
// does not see the ones before; or truncated to its first labels; or dropped. A document, or part of one, of
// which the corpus trains no token is left out: it would only take positions.
class BestFit {
 public:
  // Packs the documents of the ascending, disjoint ranges; where one ends, a document ends. Holds 12 bytes
  // per document and 8 per sequence.
  BestFit(const Corpus& corpus, std::span<const TokenRange> ranges, int64_t seq_len,
          config::LongDocuments policy);

  int64_t size() const { return static_cast<int64_t>(first_.size()) - 1; }  // sequences
  // A piece of sequence `sample`: `inputs` tokens from `begin` on, which predict those one further.
  struct Piece {
    int64_t begin = 0, inputs = 0;
  };
  int64_t pieces(int64_t sample) const { return first_[at(sample) + 1] - first_[at(sample)]; }
  Piece piece(int64_t sample, int64_t i) const;

  int64_t used() const { return used_; }        // positions of the documents in sequences
  int64_t cut() const { return cut_; }          // documents that were split or truncated
  int64_t dropped() const { return dropped_; }  // documents left out by the policy
  int64_t dropped_labels() const { return dropped_labels_; }
  // Documents that the policy left without any trained token, and parts (of all documents) left out.
  int64_t lost() const { return lost_; }
  int64_t untrained() const { return untrained_; }

 private:
  static size_t at(int64_t sample) { return static_cast<size_t>(sample); }
  std::vector<uint64_t> begin_;
  std::vector<uint32_t> inputs_;
  std::vector<int64_t> first_ = {0};  // piece of each sequence, then the number of pieces
  int64_t used_ = 0, cut_ = 0, dropped_ = 0, dropped_labels_ = 0, lost_ = 0, untrained_ = 0;
};

}  // namespace quintet::data
